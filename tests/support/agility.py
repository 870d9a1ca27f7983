"""Whether a loop comes around while something hangs, on a machine of any speed.

The measure is a thread of the same process that only sleeps: a machine that is slow or stands still
holds up both, and what blocks the loop holds up the loop alone.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

TURN_S = 0.005


@asynccontextmanager
async def agile(at_least: float) -> AsyncIterator[None]:
    """The loop comes around meanwhile, at least that often for each turn of the thread."""
    ended = threading.Event()
    turns = {"loop": 0, "thread": 0}

    def in_thread() -> None:
        while not ended.wait(TURN_S):
            turns["thread"] += 1

    async def on_loop() -> None:
        while True:
            await asyncio.sleep(TURN_S)
            turns["loop"] += 1

    thread = threading.Thread(target=in_thread, daemon=True)
    task = asyncio.create_task(on_loop())
    thread.start()
    try:
        yield
    finally:
        ended.set()
        task.cancel()
        await asyncio.to_thread(thread.join)
        await asyncio.wait([task])
    # The first turn is the loop's due: it may have begun while the thread had none.
    assert turns["loop"] + 1 >= turns["thread"] * at_least, turns
