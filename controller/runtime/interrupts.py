"""Tells a Ctrl-C from a KeyboardInterrupt that code raises by itself.  Layer: runtime.

Foreign code may raise what it likes; only what the handler of SIGINT raises is somebody's wish that
the process ends.  Invariant: where the two look the same, it is a wish.
"""

from __future__ import annotations

import signal

_HANDLER = "asyncio.runners"
"""Where `asyncio.Runner` raises the second Ctrl-C; its first one cancels the main task."""


def is_ctrl_c(error: BaseException) -> bool:
    """Whether a signal has, or may have, raised it.

    A loop that hears of SIGINT raises nothing in the code that runs.  Python's own handler raises
    in the very frame that it interrupts, which then looks like one that has raised by itself.
    """
    if not isinstance(error, KeyboardInterrupt):
        return False
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__") == _HANDLER
