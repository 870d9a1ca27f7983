"""Import of one model source as one revision.  Layer: weightstore.

Owns the upload sequence: hash the source, find a place, begin, register the members, write the
payloads, verify the persistent copies, write the manifest last, observe every member, commit what
was observed.  Each step finds out what is already done, so a crash anywhere is mended by running
the same import again; nothing becomes READY that was not seen complete in every tier it was written
to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anyio import to_thread

from weightctl.controller.core.group import GroupSnapshot
from weightctl.controller.core.observation import Member
from weightctl.controller.core.records import (
    Availability,
    RevisionMetadata,
)
from weightctl.controller.errors import (
    ErrorCode,
    FencedError,
    ReconcileError,
    UnknownOutcomeError,
    WeightError,
)
from weightctl.controller.weightstore import readers, strangers
from weightctl.controller.weightstore.digests import digest_payloads
from weightctl.controller.weightstore.drafting import check_same, draft
from weightctl.controller.weightstore.layout import created_at
from weightctl.controller.weightstore.options import Meter
from weightctl.controller.weightstore.parallel import for_each
from weightctl.controller.weightstore.placement import choose
from weightctl.controller.weightstore.primitives import (
    Hands,
    as_members,
    batches,
    complete_mask,
    observe,
    store_all,
    verify_all,
)
from weightctl.controller.weightstore.upload import Upload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.observation import Members
    from weightctl.controller.ports import Clock, Limiter, StoreItem, Tier
    from weightctl.controller.store.store import WeightMetadataStore
    from weightctl.controller.weightstore.layout import ImportLayout
    from weightctl.controller.weightstore.options import ProgressCallback, WeightStoreOptions
    from weightctl.controller.weightstore.source import ModelSource


@dataclass(frozen=True, slots=True, kw_only=True)
class PutReport:
    """What an import ended with."""

    record: RevisionMetadata
    tensor_count: int
    payload_count: int
    logical_bytes: int
    moved_bytes: int
    """Bytes written to tiers by this call; less than all when it resumed."""
    tiers: tuple[str, ...]
    """Tiers written to; empty when the revision was READY with the same content before."""


class Import:
    """One import of an open source; use once."""

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
        self._clock = clock
        self._options = options
        self._limits = limits
        self._progress = progress

    async def run(
        self, identity: Identity, source: ModelSource, names: Sequence[str] | None
    ) -> PutReport:
        """Bring the source in as `identity`.  See `WeightStore.put` for errors."""
        drafted = await draft(identity, source, self._tiers, names, self._options)
        layout = drafted.layout
        await self._placed(identity, drafted.members, names)  # before a large source is hashed
        meter = Meter(self._progress, "hash", layout.logical_bytes)
        digests = await digest_payloads(source, layout.payloads, self._options.workers, meter.add)
        await to_thread.run_sync(source.check_unchanged)
        members = drafted.hashed(digests)
        placed = await self._placed(identity, members, names)
        for tier in placed:
            await strangers.refuse(tier, members, self._looking_at(tier))
        record = await self._store.begin_import(
            identity=identity,
            expected_payload_count=len(layout.payloads),
            expected_logical_bytes=layout.logical_bytes,
        )
        manifest = replace(drafted.manifest, created_at=created_at(record.created_at_ms))
        upload = await to_thread.run_sync(Upload, record, layout, digests, manifest)
        if record.availability is Availability.READY:
            check_same(record, await self._store.directory.members(upload.group_id), upload)
            return _report(record, layout, 0, ())
        await self._store.directory.register(identity, upload.members)
        targets = placed or await choose(
            self._tiers, names, as_members(upload.group_id, upload.members), self._options
        )
        await self._store.tier_epochs.used(tier.profile.name for tier in targets)
        moved_bytes = await self._write(source, upload, targets)
        group = await self._observe(upload, targets)
        committed = await self._store.commit_import(
            identity=identity,
            expected_metadata_generation=record.metadata_generation,
            manifest=upload.reference,
            group=group,
        )
        return _report(committed, layout, moved_bytes, targets)

    async def _placed(
        self, identity: Identity, members: Members, names: Sequence[str] | None
    ) -> list[Tier]:
        """The tiers that take a new revision; empty where the identity is recorded already.

        A name is given once, so that nothing is recorded while there is no place for it.  Raises
        as `choose`.
        """
        try:
            await self._store.get(identity=identity)
        except WeightError as error:
            if error.code is ErrorCode.NOT_FOUND:
                return await choose(self._tiers, names, members, self._options)
            raise
        return []

    def _looking_at(self, tier: Tier) -> Hands:
        """To read what is there already, before there is a record."""
        return Hands(
            clock=self._clock,
            options=self._options,
            fence=self._store.fence,
            limits=self._limits,
            waits=Meter(self._progress, "verify", 0, tier.profile.name).wait,
        )

    # --- writing to the tiers ---

    async def _write(self, source: ModelSource, upload: Upload, targets: Sequence[Tier]) -> int:
        """Payloads into every target, verified where persistent, then the manifest likewise."""
        fence = replace(self._store.fence, generation=upload.record.metadata_generation)
        hands = Hands(clock=self._clock, options=self._options, fence=fence, limits=self._limits)
        moved: list[int] = []

        async def guard() -> None:
            await self._check_importing(upload.record)

        async def payloads(tier: Tier) -> None:
            moved.append(await self._write_payloads(source, upload, tier, hands))

        async def manifest(tier: Tier) -> None:
            reader = readers.bytes_reader(upload.manifest_bytes, guard)
            item = readers.item(upload.manifest, reader)
            size_bytes = upload.layout.logical_bytes
            meter = Meter(self._progress, "store", size_bytes, tier.profile.name)
            meter.reach(size_bytes)  # of the payloads, which were before
            patient = self._waiting(upload, hands, meter)
            moved.append(await store_all(tier, [upload.manifest], lambda _: item, patient))
            if tier.profile.capabilities.persistent:
                await verify_all(tier, [upload.manifest], patient)

        try:
            await for_each(targets, len(targets), payloads)
        except ReconcileError:
            # The usual reason for wrong or missing bytes is a source that was changed: say so.
            await to_thread.run_sync(source.check_unchanged)
            raise
        await to_thread.run_sync(source.check_unchanged)
        await for_each(targets, len(targets), manifest)
        return sum(moved)

    async def _write_payloads(
        self, source: ModelSource, upload: Upload, tier: Tier, hands: Hands
    ) -> int:
        name = tier.profile.name
        meter = Meter(self._progress, "store", upload.layout.logical_bytes, name)
        back = Meter(self._progress, "verify", upload.layout.logical_bytes, name)

        async def guard() -> None:
            await self._check_importing(upload.record)

        def on_read(size_bytes: int) -> None:
            # Bytes flow, so the writer lives; a hung one gives no sign and its import times out.
            self._store.touch_import(identity=upload.record.identity)
            meter.add(size_bytes)

        small: dict[str, bytes] = {}

        def item_of(member: Member) -> StoreItem:
            if member.key in small:
                return readers.item(member, readers.bytes_reader(small[member.key], guard))
            payload = upload.payload_of[member.key]
            reader = readers.payload_reader(source, payload, guard, on_read)
            return readers.item(member, reader)

        moved_bytes = done_bytes = 0
        for batch in batches(upload.payload_members, self._options):
            payloads = [upload.payload_of[member.key] for member in batch]
            small = await to_thread.run_sync(readers.read_small, source, payloads)
            storing = self._waiting(upload, hands, meter)
            moved_bytes += await store_all(tier, batch, item_of, storing)
            done_bytes += sum(member.size_bytes for member in batch)
            meter.reach(done_bytes)
            self._store.touch_import(identity=upload.record.identity)
            if tier.profile.capabilities.persistent:
                await verify_all(tier, batch, self._waiting(upload, hands, back))
                back.reach(done_bytes)
        return moved_bytes

    def _waiting(self, upload: Upload, hands: Hands, meter: Meter) -> Hands:
        """The same, but a wait is told, and is a sign of life: it is bounded."""

        def waits(what: str) -> None:
            self._store.touch_import(identity=upload.record.identity)
            meter.wait(what)

        return replace(hands, waits=waits)

    async def _check_importing(self, record: RevisionMetadata) -> None:
        """Stop writing objects of an import that somebody else has ended meanwhile."""
        now = (await self._store.get(identity=record.identity)).metadata
        if now != record:
            raise FencedError(
                f"the import of {record.identity} does not go on",
                f"the revision is {now.availability.name} by now",
                "look why it was ended; import under a new weight generation",
            )

    # --- publishing ---

    async def _observe(self, upload: Upload, targets: Sequence[Tier]) -> GroupSnapshot:
        """One fresh look at the registered members.  Raises unless each target holds them all."""
        members = await self._store.directory.members(upload.group_id)
        readable = 0
        for tier in targets:
            seen = await observe(tier, members, self._options.observe_deadline_s)
            complete = complete_mask(seen.states)
            missing = complete.find(0)
            if missing >= 0:
                raise UnknownOutcomeError(
                    f"object {members.keys[missing]} is not seen in tier {tier.profile.name}",
                    seen.problem or "it was written but is not observed complete",
                    "run the same import again: it resumes",
                )
            readable |= int.from_bytes(complete, "little")
        return GroupSnapshot(members=members, readable=readable.to_bytes(len(members), "little"))


def _report(
    record: RevisionMetadata, layout: ImportLayout, moved_bytes: int, targets: Sequence[Tier]
) -> PutReport:
    return PutReport(
        record=record,
        tensor_count=len(layout.tensors),
        payload_count=len(layout.payloads),
        logical_bytes=layout.logical_bytes,
        moved_bytes=moved_bytes,
        tiers=tuple(tier.profile.name for tier in targets),
    )
