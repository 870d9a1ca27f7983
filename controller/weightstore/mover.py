"""From a range plan to filled targets.  Layer: weightstore.

Owns how one load moves its bytes: several objects at a time, each from its best replica, the lease
checked between steps and once more before anything is handed out.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anyio import to_thread

from weightctl.controller.core.ranges import RangePlan
from weightctl.controller.weightstore.export import SafetensorsFiles
from weightctl.controller.weightstore.layout import SCALAR
from weightctl.controller.weightstore.mapped import map_objects, whole_pieces
from weightctl.controller.weightstore.options import Meter
from weightctl.controller.weightstore.parallel import finished, for_each
from weightctl.controller.weightstore.targets import (
    LoadedTensor,
    MemoryDestination,
    arena_windows,
)
from weightctl.controller.weightstore.transfer import ObjectJob, Transfer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from weightctl.controller.core.ranges import ObjectRead, Target
    from weightctl.controller.core.records import RevisionMetadata
    from weightctl.controller.ports import Limiter, Tier
    from weightctl.controller.weightstore.lease_keeper import LeaseKeeper
    from weightctl.controller.weightstore.options import ProgressCallback
    from weightctl.controller.weightstore.replicas import Replicas
    from weightctl.controller.weightstore.targets import IntoFolder
    from weightctl.controller.weightstore.transfer import Destination


@dataclass(slots=True, kw_only=True)
class LoadReport:
    """What a load ended with."""

    record: RevisionMetadata
    tensor_count: int = 0
    tensor_bytes: int = 0
    read_bytes: int = 0
    """Bytes fetched from tiers; what was read again after a failure counts once."""
    mapped_bytes: int = 0
    """Bytes of tensors that are mapped and were not copied."""
    verified_bytes: int = 0
    """Bytes of objects whose SHA-256 was checked on the way."""
    bytes_by_tier: dict[str, int] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    tensors: Mapping[str, LoadedTensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mover:
    """What every step of one load shares."""

    workers: int
    verify: bool
    limits: Mapping[str, Limiter]
    progress: ProgressCallback | None
    keeper: LeaseKeeper
    replicas: Replicas
    report: LoadReport

    async def copy(self, plan: RangePlan, destination: Destination) -> None:
        """Bring every range of the plan to its place, then check the lease once more."""
        meter = Meter(self.progress, "load", plan.read_bytes)

        def between(moved_bytes: int) -> None:
            meter.add(moved_bytes)
            self.keeper.check()

        transfer = Transfer(plan=plan, destination=destination, verify=self.verify, between=between)

        async def fetch(job: ObjectJob) -> None:
            async def read(tier: Tier) -> tuple[str, bool]:
                self.keeper.check()
                name = tier.profile.name
                return name, await transfer.copy(job, tier, self.limits.get(name))

            name, verified = await self.replicas.from_best(job.member, read)
            self._count(name, job.nbytes, verified=verified)

        await for_each(self._jobs(plan), self.workers, fetch)
        self.keeper.check()

    async def into_folder(self, plan: RangePlan, into: IntoFolder, token: str) -> None:
        """Write safetensors files; their names appear when the lease outlived the copy."""
        async with _writing(SafetensorsFiles(into, plan.targets, token)) as files:
            await self.copy(plan, files)

            async def publish() -> None:
                self.report.files = await to_thread.run_sync(files.publish)

            await finished(publish)  # all the names or none

    async def into_arrays(
        self, plan: RangePlan, plan_again: Callable[[Sequence[int]], RangePlan]
    ) -> None:
        """Map what lies whole in a mappable tier, copy the rest; `plan_again` plans the rest."""
        tensors = await self._mapped(plan)
        rest = [index for index in range(len(plan.targets)) if index not in tensors]
        if rest:
            part = plan
            if tensors:
                part = await to_thread.run_sync(plan_again, rest)
            windows = arena_windows(part.targets)
            await self.copy(part, MemoryDestination(windows))
            for index, target, window in zip(rest, part.targets, windows, strict=True):
                tensors[index] = _tensor(target, window.toreadonly(), mapped=False)
        self.keeper.check()
        self.report.tensors = {
            target.tensor.tensor_id: tensors[index] for index, target in enumerate(plan.targets)
        }

    async def _mapped(self, plan: RangePlan) -> dict[int, LoadedTensor]:
        pieces = whole_pieces(plan)
        tiers: dict[str, Tier] = {}
        for key in {key for key, _ in pieces.values()}:
            if (tier := self.replicas.mappable(self.replicas.member(key))) is not None:
                tiers[key] = tier
        members = [self.replicas.member(key) for key in tiers]
        views, wrong = await to_thread.run_sync(map_objects, members, tiers, self.verify)
        for key in wrong:
            await self.replicas.report(tiers[key], self.replicas.member(key))
        tensors: dict[int, LoadedTensor] = {}
        for index, (key, source) in pieces.items():
            if key in views:
                target = plan.targets[index]
                data = views[key][source : source + target.nbytes]
                tensors[index] = _tensor(target, data, mapped=True)
                self.report.mapped_bytes += target.nbytes
        if self.verify:
            self.report.verified_bytes += sum(map(len, views.values()))
        return tensors

    def _jobs(self, plan: RangePlan) -> list[ObjectJob]:
        reads: defaultdict[str, list[ObjectRead]] = defaultdict(list)
        for read in plan.reads:
            reads[read.object_key].append(read)
        return [
            ObjectJob(member=self.replicas.member(key), reads=ranges)
            for key, ranges in reads.items()
        ]

    def _count(self, tier: str, nbytes: int, *, verified: bool) -> None:
        report = self.report
        report.read_bytes += nbytes
        report.verified_bytes += nbytes if verified else 0
        report.bytes_by_tier[tier] = report.bytes_by_tier.get(tier, 0) + nbytes


def _tensor(target: Target, data: memoryview, *, mapped: bool) -> LoadedTensor:
    tensor = target.tensor
    shape = () if tensor.layout_fingerprint == SCALAR else target.shape
    return LoadedTensor(dtype=tensor.dtype, shape=shape, data=data, mapped=mapped)


@asynccontextmanager
async def _writing(files: SafetensorsFiles) -> AsyncIterator[SafetensorsFiles]:
    """Files being written; whatever has no final name when it ends is removed."""
    try:
        await finished(lambda: to_thread.run_sync(files.open))
        yield files
    finally:
        await finished(lambda: to_thread.run_sync(files.close))
