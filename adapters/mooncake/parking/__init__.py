"""How a replica leaves memory when the client that put it is gone.

Invariant: nothing of anybody else leaves with it.
"""
