"""Garbage collection where it stops nothing for long.  Layer: runtime; for a process of its own.

A full collection walks every object that there is: a tenth of a second beside 100,000 records, in
which no event is answered, and again whenever a quarter more has come.  So the oldest generation
is left out of what the interpreter does by itself.  It is collected every `ROUND_S`, and what is
alive then is not walked again until the same is done for everything, once a day.
"""

import gc
from typing import Never

from weightctl.controller.ports import Clock

ROUND_S = 600.0
ROUNDS_A_DAY = 144
_NEVER = 1_000_000
"""Collections of the middle generation before the interpreter thinks of the oldest one."""


async def collect_in_rounds(clock: Clock) -> Never:
    """Keep full collections to these rounds until it is cancelled.

    What was read before the start is taken to be alive, so that a start waits for no collection.
    """
    young, middle, oldest = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER)
    gc.freeze()
    rounds = 0
    try:
        while True:
            await clock.sleep(ROUND_S)
            rounds += 1
            if rounds % ROUNDS_A_DAY == 0:
                gc.unfreeze()
            gc.collect()
            gc.freeze()
    finally:
        gc.set_threshold(young, middle, oldest)
