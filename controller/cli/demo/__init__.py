"""`weightctl demo`: the main job, told on a real model with real crashes.  Layer: cli.

A loop runs in a child process over a temporary state directory and is killed with SIGKILL in the
middle of operations.  What a step claims is checked from outside: from the records on disk, from
the tiers' own accounts, and by loading every tensor and comparing it with the source byte for byte.
"""
