"""The kit for authors of tiers; see the README beside this file.  Layer: above tiers.

`reference` is a whole tier to read, `suite` the contract as pytest cases, `check` and `new` stand
behind `weightctl adapter`, `faults` makes any tier misbehave on request, `simulation` runs the loop
in a world of faults.  Importing this package imports nothing; only `suite` and `session` need
pytest.
"""
