"""The pure core: identity, records, lifecycle, manifest, observation, planning.

No await, clock, randomness, I/O, logging or pydantic in here; every function maps values to values.
"""
