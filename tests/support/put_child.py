"""A process that imports a model and kills itself at a named point: `put_child FOLDER POINT`.

Points: `hash`, `store` and `verify` with a number (the n-th report of that stage), or `after` and a
method of the metadata store or directory.  Run without a point it ends the import.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.support.rig import IDENTITY
from tests.support.tiers import file_tiers
from weightctl.controller.clock import SystemClock, SystemEntropy
from weightctl.controller.store.store import WeightMetadataStore
from weightctl.controller.weightstore.facade import WeightStore
from weightctl.controller.weightstore.options import Progress, WeightStoreOptions

OPTIONS = WeightStoreOptions(payload_bytes=2000, batch_items=2)


def die() -> None:
    """End as a process ends that is killed: at once, without any clean-up."""
    os.kill(os.getpid(), signal.SIGKILL)


def dying(call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Do the call, then die."""

    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        await call(*args, **kwargs)
        die()

    return wrapped


async def main(folder: Path, stage: str, number: str) -> None:
    """Import until the point."""
    clock, entropy = SystemClock(), SystemEntropy()
    seen = 0

    def count(progress: Progress) -> None:
        nonlocal seen
        seen += progress.stage == stage
        if seen and seen == int(number):
            die()

    async with (
        WeightMetadataStore.open(folder / "state", clock=clock, entropy=entropy) as store,
        file_tiers(folder, clock=clock, entropy=entropy) as tiers,
    ):
        if stage == "after":
            owner: Any = store.directory if number == "register" else store
            setattr(owner, number, dying(getattr(owner, number)))
        weights = WeightStore(store, tiers, clock=clock, entropy=entropy, options=OPTIONS)
        progress = count if number.isdigit() else None
        await weights.put(IDENTITY, folder / "model.safetensors", progress=progress)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:4]))
