"""The client facade: put a model into the store, load it back under a lease.

Imports nothing here; use `weightctl.controller.weightstore.facade.WeightStore`.
"""
