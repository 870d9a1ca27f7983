"""`WeightMetadataStore`: the public API of the embedded Weight Metadata Store.  Layer: store.

One method for each request of the contract, keyword-only; every refusal is a `WeightError` with the
contract's code, INVALID_ARGUMENT for an argument of another type than its annotation.  Reads answer
from memory and never wait; a mutation returns when it is durable.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from weightctl.controller.core import lifecycle
from weightctl.controller.core.adoption import prepare_adoption
from weightctl.controller.core.identity import Identity, payload_group_id
from weightctl.controller.core.records import Availability
from weightctl.controller.errors import FencedError, InvariantViolationError, WeightError
from weightctl.controller.ports import Fence
from weightctl.controller.store.arguments import typed
from weightctl.controller.store.connection import Connect, connect
from weightctl.controller.store.damage import DamageBook, verdicts_removal
from weightctl.controller.store.directory import Directory, removal_of
from weightctl.controller.store.engine import METADATA, Engine
from weightctl.controller.store.evidence import EvidenceBook, TierEpochs
from weightctl.controller.store.gate import CapabilityGate
from weightctl.controller.store.imports import ImportSigns
from weightctl.controller.store.lease_requests import LeaseRequests
from weightctl.controller.store.object_table import ObjectTable
from weightctl.controller.store.objects import PlainObjects
from weightctl.controller.store.opening import OpenDirectory, open_directory
from weightctl.controller.store.operation_requests import OperationRequests
from weightctl.controller.store.reads import Reads
from weightctl.controller.store.snapshots import Snapshots

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Callable

    from weightctl.controller.core.adoption import Adoption
    from weightctl.controller.core.group import GroupSnapshot
    from weightctl.controller.core.mutations import MetadataMutation
    from weightctl.controller.core.records import (
        ManifestReference,
        Residency,
        RevisionMetadata,
        Snapshot,
    )
    from weightctl.controller.core.state import WeightState
    from weightctl.controller.ports import Clock, Entropy
    from weightctl.controller.store.archive import Archive


class WeightMetadataStore(Reads, LeaseRequests, OperationRequests):
    """The authority over revisions, leases and operations of one state directory."""

    def __init__(self, opened: OpenDirectory, engine: Engine, *, clock: Clock) -> None:
        self._opened = opened
        super().__init__(engine, clock)
        self._imports = ImportSigns(clock)
        table = ObjectTable(opened.reader, opened.last_group_number)
        self.directory = Directory(engine, opened.reader, table, self._imports)
        self._snapshots = Snapshots(engine, opened.reader, self.holder)
        self.objects = PlainObjects(engine, opened.reader, table, self.directory, self.fence)
        self.evidence = EvidenceBook(engine, opened.reader)
        self.damage = DamageBook(engine, opened.damage)
        self.tier_epochs = TierEpochs(engine, opened.tier_epochs)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        state_dir: str | os.PathLike[str],
        *,
        clock: Clock,
        entropy: Entropy,
        gate: CapabilityGate | None = None,
        connect: Connect = connect,
        term_above: int = 0,
    ) -> AsyncIterator[WeightMetadataStore]:
        """Open a state directory for writing; creates it when it is not there.

        `connect` opens the journal's connections; `term_above` is a term that tiers have served and
        an older copy of the directory does not know of.  Enter and leave in the same task.  Raises
        StateDirectoryHeldError with the holder's pid, StateDirectoryError when it is damaged,
        foreign, of a newer version or not writable; FencedError, which also cancels the body, when
        another process has opened it since.
        """
        failure: Exception | None = None
        async with open_directory(
            Path(state_dir), clock=clock, entropy=entropy, connect=connect, term_above=term_above
        ) as opened:
            engine = Engine(opened, clock=clock, gate=gate or CapabilityGate())
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(engine.journal.run)
                    try:
                        yield cls(opened, engine, clock=clock)
                    except Exception as error:  # noqa: BLE001 - leaves as itself, not in a group
                        failure = error
                    finally:
                        engine.journal.close()
            except* FencedError as deposed:
                failure = failure or deposed.exceptions[0]
        if failure is not None:
            raise failure

    # --- who and how ------------------------------------------------------------------------------

    @property
    def holder(self) -> str:
        """The store's uuid (hexadecimal), constant for the life of the directory."""
        return self._opened.tail.header.store_id

    @property
    def term(self) -> int:
        """Grows with each opening for writing; fences what an earlier process may still do."""
        return self._opened.tail.header.term

    @property
    def fence(self) -> Fence:
        """For whom this process acts, without an operation."""
        return Fence(
            holder=self.holder,
            term=self.term,
            operation_id=0,
            generation=0,
            past=self._opened.past_terms,
        )

    @property
    def healthy(self) -> bool:
        """False when no mutation can succeed before a restart; reads go on."""
        return self._engine.journal.healthy

    @property
    def problem(self) -> str:
        """Why the last append failed, for people; empty when it succeeded."""
        return self._engine.journal.problem

    @property
    def last_sequence(self) -> int:
        """Sequence of the last durable op-log entry, 0 for none."""
        return self._engine.journal.last_sequence

    @property
    def commits(self) -> int:
        """Journal transactions since opening; concurrent mutations share one."""
        return self._engine.journal.commits

    # --- imports ----------------------------------------------------------------------------------

    @typed
    async def begin_import(
        self,
        *,
        identity: Identity,
        expected_payload_count: int,
        expected_logical_bytes: int,
        payload_group_id: str = "",
    ) -> RevisionMetadata:
        """BeginWeightImport; a retry returns the present record unchanged."""

        def prepare(state: WeightState, *, now_ms: int) -> MetadataMutation:
            mutation = lifecycle.prepare_begin(
                state,
                identity=identity,
                expected_payload_count=expected_payload_count,
                expected_logical_bytes=expected_logical_bytes,
                payload_group_id=payload_group_id,
                now_ms=now_ms,
            )
            self._imports.touch(identity)  # before it can be seen, and be taken for abandoned
            return mutation

        try:
            record = await self._metadata(identity, prepare)
        except WeightError:
            if identity not in self._engine.state.metadata:
                self._imports.forget(identity)
            raise
        if record.availability is not Availability.IMPORTING:
            self._imports.forget(identity)
        return record

    @typed
    async def commit_import(
        self,
        *,
        identity: Identity,
        expected_metadata_generation: int,
        manifest: ManifestReference,
        group: GroupSnapshot | None = None,
    ) -> RevisionMetadata:
        """CommitWeightImport; `group` is a fresh look at the payload group.

        Without `group` this is the state machine alone, for a store that knows of no objects; an
        import always gives what it has seen, and an empty group is NOT_FOUND.
        """
        record = await self._metadata(
            identity,
            partial(
                lifecycle.prepare_commit,
                identity=identity,
                expected_metadata_generation=expected_metadata_generation,
                manifest=manifest,
                group=group,
            ),
        )
        self._imports.forget(identity)
        return record

    @typed
    async def adopt_revision(
        self,
        *,
        identity: Identity,
        manifest: ManifestReference,
        group: GroupSnapshot,
        residency: Residency,
    ) -> RevisionMetadata:
        """Begin, registration of the members and Commit as one, for objects that exist already.

        `group` is what was seen of all of them just now.  A crash leaves the revision READY or no
        trace of it: an import that was given up would be cleaned away with its objects.
        """
        members = group.members

        def prepare(state: WeightState) -> Adoption:
            return prepare_adoption(
                state,
                identity=identity,
                manifest=manifest,
                group=group,
                residency=residency,
                now_ms=self._clock.wall_ms(),
            )

        return await self.directory.adopt(
            identity, list(members.select(range(len(members)))), prepare
        )

    @typed
    async def abort_import(
        self, *, identity: Identity, expected_metadata_generation: int
    ) -> RevisionMetadata:
        """AbortWeightImport; what was written is cleaned away as by a deletion."""
        record = await self._metadata(
            identity,
            partial(
                lifecycle.prepare_abort,
                identity=identity,
                expected_metadata_generation=expected_metadata_generation,
            ),
        )
        self._imports.forget(identity)
        return record

    @typed
    def touch_import(self, *, identity: Identity) -> None:
        """A sign of life of the writer; kept in memory only."""
        self._imports.touch(identity)

    @typed
    def import_idle_s(self, *, identity: Identity) -> float:
        """Seconds since the writer was last heard of, or since this store was opened."""
        return self._imports.idle_s(identity)

    # --- deletion, observation --------------------------------------------------------------------

    @typed
    async def delete_revision(
        self, *, identity: Identity, expected_metadata_generation: int
    ) -> RevisionMetadata:
        """DeleteWeightRevision; erases the expired leases in the same commit."""
        return await self._metadata(
            identity,
            partial(
                lifecycle.prepare_delete,
                identity=identity,
                expected_metadata_generation=expected_metadata_generation,
            ),
        )

    @typed
    async def finish_delete(
        self, *, identity: Identity, expected_metadata_generation: int
    ) -> RevisionMetadata:
        """FinishDelete; group and verdicts leave in the same commit."""
        record = await self._engine.mutate(
            identity,
            partial(
                lifecycle.prepare_finish_delete,
                identity=identity,
                expected_metadata_generation=expected_metadata_generation,
            ),
            METADATA,
            [*removal_of(identity), verdicts_removal(identity)],
        )
        self.directory.forget(payload_group_id(identity))
        self.damage.group_removed(payload_group_id(identity))
        return _kept(record)

    @typed
    async def publish_observation(
        self,
        *,
        identity: Identity,
        expected_metadata_generation: int,
        availability: Availability,
        residency: Residency,
    ) -> RevisionMetadata:
        """Publish what was observed of an idle published revision."""
        return await self._metadata(
            identity,
            partial(
                lifecycle.prepare_observation,
                identity=identity,
                expected_metadata_generation=expected_metadata_generation,
                availability=availability,
                residency=residency,
            ),
        )

    # --- snapshots --------------------------------------------------------------------------------

    async def export_snapshot(self) -> Snapshot:
        """The weight state of one moment."""
        return await self._snapshots.export()

    @typed
    async def restore_snapshot(self, snapshot: Snapshot) -> None:
        """Replace the weight state, all or nothing; objects stay as they are."""
        await self._snapshots.restore(snapshot)

    @typed
    async def save_archive(self, path: str | os.PathLike[str]) -> Archive:
        """Write a snapshot file of state and object directory; durable when it returns."""
        return await self._snapshots.save(Path(path))

    @typed
    async def restore_archive(self, path: str | os.PathLike[str]) -> Archive:
        """Replace state and object directory by those of a snapshot file, all or nothing."""
        archive = await self._snapshots.load(Path(path))
        self.directory.clear()
        return archive

    async def _metadata(
        self, identity: Identity, prepare: Callable[..., MetadataMutation]
    ) -> RevisionMetadata:
        return _kept(await self._engine.mutate(identity, prepare, METADATA))


def _kept(record: RevisionMetadata | None) -> RevisionMetadata:
    if record is None:
        raise InvariantViolationError("an upsert left no record")
    return record
