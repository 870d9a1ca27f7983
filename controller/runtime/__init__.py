"""The running loop: queue, passes, observation, execution, supervision.  Layer: runtime (shell).

Nothing here decides what to do with a revision; `controller.core.planner` does.
"""
