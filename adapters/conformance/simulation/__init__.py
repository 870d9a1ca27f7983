"""The product's own store and loop in a world that follows a script.  Layer: conformance.

One thread, virtual time, and an order of tasks that is drawn from a seed: one script is one run.
`script` says what happens, `world.simulate` carries it out and `shrink.told` makes what fails
small; the README beside this file says which oracle keeps which rule.
"""
