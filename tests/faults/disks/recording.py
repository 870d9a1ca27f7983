"""Lives recorded on a real mount, for judging what a power loss leaves of them."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from tests.faults.disks import journal, product, replicas
from tests.faults.disks.kinds import KINDS
from tests.faults.disks.power import Judge
from tests.support.fuse.disk import Change
from tests.support.fuse.mounted import Lab, mounted

Note = Callable[[object], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What was done, and how to judge what is left of it."""

    log: list[Change]
    judge: Judge


def note_to(lab: Lab) -> Note:
    """Put facts into the log, in their place among the operations."""

    async def note(fact: object) -> None:
        await to_thread.run_sync(lab.mark, fact)

    return note


def record_tier(name: str, folder: Path) -> Recording:
    """The life of a few replicas in a tier, without a fault."""
    kind = KINDS[name]
    with mounted(folder) as lab:
        life = replicas.Life(kind, folder, note_to(lab))
        asyncio.run(life.run())
        assert not life.problems, life.problems
        log = lab.log()
    return Recording(log=log, judge=lambda image, facts: replicas.judge(kind, image, facts))


def record_product(folder: Path, scratch: Path) -> Recording:
    """The life of a model in the whole product, without a fault; scratch: a folder in memory."""
    hot = scratch / "hot"

    def judge(image: Path, facts: Sequence[object]) -> None:
        shutil.rmtree(hot)
        hot.mkdir()
        asyncio.run(product.judge(image, hot, facts))

    hot.mkdir()
    with mounted(folder) as lab:
        asyncio.run(product.live(folder, hot, note_to(lab)))
        log = lab.log()
    return Recording(log=log, judge=judge)


def record_journal(folder: Path) -> Recording:
    """The life of a state directory, without a fault."""
    with mounted(folder) as lab:
        pictures = asyncio.run(journal.live(folder, note_to(lab)))
        log = lab.log()
    return Recording(log=log, judge=journal.judge_of(pictures))
