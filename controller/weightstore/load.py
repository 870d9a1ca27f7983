"""Load of one revision under a lease.  Layer: weightstore.

Owns the reader's sequence: acquire, read and check the manifest, plan ranges, transfer, check the
lease again, publish, release.  Nothing is handed out before the lease is known to have been live
after the last byte; the lease is released in every case.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from anyio import to_thread

from weightctl.controller.core.manifest_codec import MANIFEST_BYTES_MAX, read_manifest
from weightctl.controller.core.ranges import RangePlan, TensorSlice, plan_ranges
from weightctl.controller.errors import ErrorCode, IntegrityError, WeightError
from weightctl.controller.ports import PIECE_BYTES
from weightctl.controller.weightstore.damage import DamageReports
from weightctl.controller.weightstore.lease_keeper import held_lease
from weightctl.controller.weightstore.mover import LoadReport, Mover
from weightctl.controller.weightstore.replicas import Replicas, Reports
from weightctl.controller.weightstore.targets import (
    Into,
    IntoArrays,
    IntoBuffers,
    IntoFolder,
    MemoryDestination,
    caller_windows,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weightctl.controller.core.manifest import StoredWeightManifest
    from weightctl.controller.core.observation import Member, Members
    from weightctl.controller.core.records import RevisionMetadata
    from weightctl.controller.ports import Clock, Limiter, Tier
    from weightctl.controller.store.store import WeightMetadataStore
    from weightctl.controller.weightstore.options import ProgressCallback, WeightStoreOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """What is to be loaded, where to, and as whom."""

    wanted: Sequence[TensorSlice] | None
    """None: every tensor, or those that the buffers name."""
    into: Into
    holder: str
    ttl_ms: int
    verify: bool
    token: str
    """Makes temporary file names of this load its own."""
    progress: ProgressCallback | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """Reads revisions from the tiers."""

    store: WeightMetadataStore
    tiers: Sequence[Tier]
    clock: Clock
    options: WeightStoreOptions
    limits: Mapping[str, Limiter]
    """The bandwidth of each tier that has one, by its name."""

    async def run(self, record: RevisionMetadata, request: LoadRequest) -> LoadReport:
        """See `WeightStore.load` for errors."""
        report = LoadReport(record=record)
        async with held_lease(
            self.store, self.clock, record, holder=request.holder, ttl_ms=request.ttl_ms
        ) as keeper:
            members = await self.store.directory.members(record.manifest.payload_group_id)
            manifest = await self._manifest(record, members)
            keeper.check()
            wanted = _wanted(manifest, request)
            plan_of = partial(plan_ranges, manifest, gap_bytes=self.options.gap_bytes)
            plan = await to_thread.run_sync(plan_of, wanted)
            report.tensor_count = len(plan.targets)
            report.tensor_bytes = sum(target.nbytes for target in plan.targets)
            mover = Mover(
                workers=self.options.workers,
                verify=request.verify,
                limits=self.limits,
                progress=request.progress,
                keeper=keeper,
                replicas=await self._look(record, _objects(record, plan, members)),
                report=report,
            )
            match request.into:
                case IntoFolder() as folder:
                    await mover.into_folder(plan, folder, request.token)
                case IntoBuffers() as into:
                    windows = caller_windows(into.buffers, plan.targets)
                    await mover.copy(plan, MemoryDestination(windows))
                case IntoArrays():
                    await mover.into_arrays(
                        plan, lambda rest: plan_of([wanted[index] for index in rest])
                    )
        return report

    async def _manifest(self, record: RevisionMetadata, members: Members) -> StoredWeightManifest:
        return await stored_manifest(
            record,
            members,
            self.tiers,
            reports=self._reports(record),
            deadline_s=self.options.observe_deadline_s,
            limits=self.limits,
        )

    async def _look(self, record: RevisionMetadata, members: Sequence[Member]) -> Replicas:
        replicas = Replicas(members, self._reports(record))
        await replicas.look(self.tiers, self.options.observe_deadline_s)
        return replicas

    def _reports(self, record: RevisionMetadata) -> DamageReports:
        return DamageReports(
            store=self.store,
            clock=self.clock,
            group_id=record.manifest.payload_group_id,
            deadline_s=self.options.observe_deadline_s,
            limits=self.limits,
        )


async def stored_manifest(
    record: RevisionMetadata,
    members: Members,
    tiers: Sequence[Tier],
    *,
    reports: Reports,
    deadline_s: float,
    limits: Mapping[str, Limiter] | None = None,
) -> StoredWeightManifest:
    """The checked manifest from the first replica that is right.

    Raises IntegrityError, NothingReadableError, ManifestError.
    """
    key = record.manifest.manifest_key
    member = _select(record, members, {key: 1})[0]
    if member.size_bytes > MANIFEST_BYTES_MAX:
        raise _not_held(record, key, f"it has {member.size_bytes} bytes")

    async def read(tier: Tier) -> StoredWeightManifest:
        raw = await _read_whole(tier, member, (limits or {}).get(tier.profile.name))
        return await to_thread.run_sync(read_manifest, record, raw)

    replicas = Replicas([member], reports)
    await replicas.look(tiers, deadline_s)
    return await replicas.from_best(member, read)


def _wanted(manifest: StoredWeightManifest, request: LoadRequest) -> Sequence[TensorSlice]:
    if request.wanted is None:
        names = [tensor.tensor_id for tensor in manifest.tensors]
        if isinstance(request.into, IntoBuffers):
            names = list(request.into.buffers)
        return [TensorSlice(tensor_id=name) for name in names]
    names = [item.tensor_id for item in request.wanted]
    if len(set(names)) != len(names):
        raise WeightError(
            ErrorCode.INVALID_ARGUMENT,
            f"tensor {Counter(names).most_common(1)[0][0]!r} is asked for more than once",
            "each target is named by its tensor",
            "load the two slices one after the other",
        )
    return request.wanted


def _objects(record: RevisionMetadata, plan: RangePlan, members: Members) -> list[Member]:
    """The members that the plan reads; the manifest may only name registered bytes."""
    ends = {read.object_key: read.offset + read.nbytes for read in plan.reads}
    return _select(record, members, ends)


def _select(record: RevisionMetadata, members: Members, ends: Mapping[str, int]) -> list[Member]:
    """The members with these keys, each of at least the given size."""
    index = {key: number for number, key in enumerate(members.keys)}
    selected = []
    for key, end in ends.items():
        if key not in index:
            raise _not_held(record, key, "the directory does not name it")
        member = members.member(index[key])
        if member.size_bytes < end:
            raise _not_held(record, key, f"byte {end} is wanted of {member.size_bytes}")
        selected.append(member)
    return selected


async def _read_whole(tier: Tier, member: Member, limit: Limiter | None) -> bytes:
    content = bytearray(member.size_bytes)
    view = memoryview(content)
    async with tier.open(member) as reader:
        if reader.size_bytes != member.size_bytes:
            raise IntegrityError(
                f"object {member.key} in tier {tier.profile.name} is damaged",
                f"it has {reader.size_bytes} bytes, recorded are {member.size_bytes}",
                "`weightctl repair` replaces the replica from a good one",
            )
        for start in range(0, len(view), PIECE_BYTES):
            piece = view[start : start + PIECE_BYTES]
            if limit is not None:
                await limit.charge(len(piece))
            await reader.read_into(start, piece)
    return bytes(content)


def _not_held(record: RevisionMetadata, key: str, why: str) -> IntegrityError:
    return IntegrityError(
        f"object {key} of {record.identity} cannot be what the manifest says",
        why,
        "the directory and the manifest disagree; publish the revision again",
    )
