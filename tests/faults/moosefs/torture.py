"""How much a run takes: the size of CI, or many times that (`make torture`).

With `TORTURE=N` in the environment every test of this folder that counts rounds takes N times as
many, and all of them run on both event loops; CI runs them on one, because what they add to the
other tests lies below the loop.
"""

import os

FACTOR = max(1, int(os.environ.get("TORTURE", "1")))
LOOPS = ("asyncio", "uvloop") if FACTOR > 1 else ("uvloop",)


def times(rounds: int) -> int:
    """That many rounds in CI, a multiple of them in a longer run."""
    return rounds * FACTOR
