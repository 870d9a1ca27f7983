"""Adoption of objects that the tiers hold already.  Layer: weightstore.

Owns the sequence: look at every member in every tier, read every replica, put the manifest object
where no tier has it, look again, and publish all of it in one transaction.  Nothing is written
before everything has been read right; payloads are never written, replaced or removed, and a crash
leaves either a READY revision or objects as they were.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from weightctl.controller.core.group import GroupSnapshot
from weightctl.controller.core.records import Residency
from weightctl.controller.core.validity import PUBLISHED
from weightctl.controller.errors import ErrorCode, UnknownOutcomeError, WeightError
from weightctl.controller.weightstore import readers
from weightctl.controller.weightstore.adoptable import Look, Obstacle, Reading, look, read
from weightctl.controller.weightstore.options import Meter
from weightctl.controller.weightstore.primitives import Hands, store_all, verify_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weightctl.controller.core.observation import Members
    from weightctl.controller.core.records import RevisionMetadata
    from weightctl.controller.ports import Clock, Limiter, Tier
    from weightctl.controller.store.store import WeightMetadataStore
    from weightctl.controller.weightstore.candidate import Candidate
    from weightctl.controller.weightstore.options import ProgressCallback, WeightStoreOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptReport:
    """What adopting a candidate led, or would lead to; with obstacles it leads to nothing."""

    candidate: Candidate
    record: RevisionMetadata | None
    """The revision; None when nothing was adopted."""
    held: Mapping[str, int]
    """By tier, how many members it shows complete; empty when the revision was managed before."""
    obstacles: Sequence[Obstacle] = ()
    read_bytes: int = 0
    told: int = 0
    """Members whose digest was given beside the manifest, the manifest itself among them."""
    recorded: int = 0
    """Others whose digest some tier had recorded when they were stored."""
    durable: bool = False
    """A persistent tier has all of it."""
    manifest_seen: bool = False


class Adoption:
    """One adoption; use once."""

    def __init__(
        self,
        store: WeightMetadataStore,
        tiers: Sequence[Tier],
        *,
        clock: Clock,
        options: WeightStoreOptions,
        limits: Mapping[str, Limiter],
        progress: ProgressCallback | None,
    ) -> None:
        self._store = store
        self._tiers = tiers
        self._progress = progress
        self._deadline_s = options.observe_deadline_s
        fence = replace(store.fence, generation=1)
        waits = Meter(progress, "verify", 0).wait
        self._hands = Hands(clock=clock, options=options, fence=fence, limits=limits, waits=waits)

    async def run(self, candidate: Candidate) -> AdoptReport:
        """Adopt, or say what is in the way.  See `WeightStore.adopt` for errors."""
        record = self._store.record(identity=candidate.identity)
        if record is not None:
            return managed(candidate, record)
        found = await look(candidate, self._tiers, self._deadline_s)
        if found.obstacles:
            return told_of(candidate, found)
        meters: dict[str, tuple[Meter, list[int]]] = {}

        def on_read(name: str, size_bytes: int) -> None:
            if name not in meters:
                total = candidate.reference.logical_bytes + len(candidate.manifest_bytes)
                meters[name] = (Meter(self._progress, "verify", total, name), [])
            meters[name][0].add(size_bytes)

        reading = await read(candidate, found, self._hands, on_read)
        if reading.obstacles:
            return told_of(candidate, found, reading)
        await self._store.tier_epochs.used(
            held.tier.profile.name for held in found.held if held.complete
        )
        await self._put_manifest(candidate, found)
        record, seen = await self._publish(candidate, reading)
        report = told_of(candidate, found, reading, record)
        return replace(report, held=_held(seen))

    async def _put_manifest(self, candidate: Candidate, found: Look) -> None:
        """Where no tier has the manifest object: into those that have every payload."""
        index = candidate.manifest_index
        if found.holders(index):
            return
        most = max(len(held.complete) for held in found.held)
        manifest = candidate.manifest_member

        async def go_on() -> None:
            """Nobody else ends an adoption."""

        item = readers.item(manifest, readers.bytes_reader(candidate.manifest_bytes, go_on))
        for held in found.held:
            if len(held.complete) == most:
                await store_all(held.tier, [manifest], lambda _: item, self._hands)
                if held.tier.profile.capabilities.persistent:
                    await verify_all(held.tier, [manifest], self._hands)

    async def _publish(
        self, candidate: Candidate, reading: Reading
    ) -> tuple[RevisionMetadata, Look]:
        """One more look, then the record.  Raises when a replica is not the one that was read."""
        members = self._found(candidate, reading)
        seen = await look(replace(candidate, members=members), self._tiers, self._deadline_s)
        details = {held.tier.profile.name: held.details for held in seen.held}
        for index, digests in reading.digests.items():
            for name, (_, instance_id) in digests.items():
                now = details.get(name, {}).get(index)
                if now is None or now.instance_id != instance_id:
                    raise _changed(candidate, index, name)
        count = len(candidate.members)
        holders = [seen.holders(index) for index in range(count)]
        if not all(holders):
            raise _changed(candidate, holders.index([]), "")
        record = await self._store.adopt_revision(
            identity=candidate.identity,
            manifest=candidate.reference,
            group=GroupSnapshot(members=members, readable=b"\1" * count),
            residency=_residency(seen, count),
        )
        return record, seen

    def _found(self, candidate: Candidate, reading: Reading) -> Members:
        digests = [candidate.manifest_sha256] * len(candidate.members)
        for index, read_back in reading.digests.items():
            digests[index] = next(iter(read_back.values()))[0]
        return candidate.with_digests(digests)


def told_of(
    candidate: Candidate,
    found: Look,
    reading: Reading | None = None,
    record: RevisionMetadata | None = None,
) -> AdoptReport:
    """The report of a look and, where it came to that, of a reading."""
    count = len(candidate.members)
    told = {index for index in range(count) if candidate.expected(index) is not None}
    recorded = {
        index for held in found.held for index, one in held.details.items() if one.sha256
    } - told
    obstacles = [*found.obstacles, *(reading.obstacles if reading else ())]
    return AdoptReport(
        candidate=candidate,
        record=record,
        held=_held(found),
        obstacles=obstacles,
        read_bytes=reading.read_bytes if reading else 0,
        told=len(told),
        recorded=len(recorded),
        durable=any(
            len(held.complete) >= count - (not found.holders(candidate.manifest_index))
            and held.tier.profile.capabilities.persistent
            for held in found.held
        ),
        manifest_seen=bool(found.holders(candidate.manifest_index)),
    )


def _held(seen: Look) -> dict[str, int]:
    return {held.tier.profile.name: len(held.complete) for held in seen.held}


def managed(candidate: Candidate, record: RevisionMetadata) -> AdoptReport:
    """For an identity that is known: nothing to do when it is the same revision.

    Raises WeightError CONFLICT when it is another one, or not published.
    """
    if record.availability in PUBLISHED and record.manifest == candidate.reference:
        return AdoptReport(candidate=candidate, record=record, held={})
    raise WeightError(
        ErrorCode.CONFLICT,
        f"revision {candidate.identity} cannot be adopted",
        f"it is {record.availability.name} here already"
        + (" with another manifest" if record.availability in PUBLISHED else ""),
        "look at it with `weightctl get`; only what no revision manages can be adopted",
    )


def _residency(seen: Look, count: int) -> Residency:
    hot = {index for held in seen.held if held.tier.profile.hot for index in held.complete}
    if len(hot) == count:
        return Residency.HOT
    return Residency.MIXED if hot else Residency.COLD


def _changed(candidate: Candidate, index: int, tier: str) -> UnknownOutcomeError:
    where = f" in tier {tier}" if tier else ""
    return UnknownOutcomeError(
        f"object {candidate.members.keys[index]}{where} changed while it was being adopted",
        "what lies there now is not what was read a moment ago",
        "nothing was adopted: keep its writers away, then run the same command again",
    )
