"""How much a run takes: the size of CI, or many times that (`make torture`).

With `TORTURE=N` in the environment every test of this folder that counts rounds takes N times as
many, and what runs on one event loop in CI runs on both.
"""

import os

FACTOR = max(1, int(os.environ.get("TORTURE", "1")))
LOOPS = ["asyncio", "uvloop"] if FACTOR > 1 else ["uvloop"]
"""For `pytest.mark.asyncio(loop_factories=LOOPS)`; elsewhere the same rules run on both."""


def times(rounds: int) -> int:
    """That many rounds in CI, a multiple of them in a longer run."""
    return rounds * FACTOR
