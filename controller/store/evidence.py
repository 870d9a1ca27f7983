"""Which verified copy justified each drop.  Layer: store.

Written and durable before the drop that it justifies; no part of the op-log, and never consulted to
decide anything later: it is there to be shown.  Bounded per revision and in all, oldest first.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import xxhash

from weightctl.controller.core.identity import revision_record_key
from weightctl.controller.errors import StateDirectoryError
from weightctl.controller.store.commit import RowChange
from weightctl.controller.store.database import BAD_FILE, column_time
from weightctl.controller.store.statements import load

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from weightctl.controller.core.identity import Identity
    from weightctl.controller.store.connection import StoreConnection
    from weightctl.controller.store.engine import Engine

SQL = load("evidence")
DROPS_PER_REVISION_MAX = 100_000
DROPS_MAX = 500_000
_BATCH_DROPS = 256
_TYPES = [str, str, str, str, str, str, str, int, int, int]
_TRIM_EVERY = 64
"""The bound over all revisions is applied once in so many writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRow:
    """One drop: what was dropped, and the copy that was read back with the right digest."""

    member_key: str
    dropped_tier: str
    dropped_instance: str
    evidence_tier: str
    evidence_instance: str
    evidence_sha256: bytes
    """Raw digest, 32 bytes."""
    evidence_epoch: str
    verified_at_ms: int
    """Wall clock."""
    operation_id: int
    """The operation that asked for the drop, 0 for none."""
    at_ms: int
    """Wall clock, when the drop was decided."""


class EvidenceBook:
    """The durable record of justified drops."""

    def __init__(self, engine: Engine, reader: StoreConnection) -> None:
        self._engine = engine
        self._reader = reader
        self._writes = 0

    async def record(self, identity: Identity, rows: Sequence[EvidenceRow]) -> None:
        """Write rows down; durable when it returns.  Raises WeightError DURABILITY_FAILED."""
        if not rows:
            return
        revision = revision_record_key(identity)
        changes = [
            _insertion(revision, rows[start : start + _BATCH_DROPS])
            for start in range(0, len(rows), _BATCH_DROPS)
        ]
        changes.append(RowChange(SQL["trim_revision"], (revision, DROPS_PER_REVISION_MAX)))
        if self._writes % _TRIM_EVERY == 0:
            changes.append(RowChange(SQL["trim_all"], (DROPS_MAX,)))
        self._writes += 1
        await self._engine.append_rows(identity, changes)

    async def rows(self, identity: Identity) -> tuple[EvidenceRow, ...]:
        """What is kept for a revision, oldest first.  Raises StateDirectoryError when damaged."""
        return await self._reader.run(read_evidence, identity)


class TierEpochs:
    """Every tier in use, with the last epoch seen: a change is noticed across restarts."""

    def __init__(self, engine: Engine, known: dict[str, str]) -> None:
        self._engine = engine
        self._known = known

    def get(self, tier: str) -> str:
        """The last epoch, empty for a tier that was never seen, though it may have been used."""
        return self._known.get(tier, "")

    def names(self) -> tuple[str, ...]:
        """Every tier that was ever seen or written to."""
        return tuple(self._known)

    async def used(self, tiers: Iterable[str]) -> None:
        """Remember tiers that are about to be written to; durable when it returns.

        What is written there has to be looked for by a deletion, also when nobody saw the tier
        since and it is not configured any more.  Raises WeightError DURABILITY_FAILED.
        """
        for tier in tiers:
            if tier not in self._known:
                await self.set(tier, "")

    async def set(self, tier: str, epoch: str) -> None:
        """Remember an epoch; durable when it returns.  Raises WeightError DURABILITY_FAILED."""
        if self._known.get(tier) == epoch:
            return
        values = (tier, epoch, column_time(self._engine.clock), _epoch_checksum(tier, epoch))
        await self._engine.append_rows(f"tier {tier}", [RowChange(SQL["write_epoch"], values)])
        self._known[tier] = epoch


def read_evidence(connection: sqlite3.Connection, identity: Identity) -> tuple[EvidenceRow, ...]:
    """Every kept row of a revision, oldest first; blocking.  Raises StateDirectoryError."""
    rows: list[EvidenceRow] = []
    key = revision_record_key(identity)
    try:
        for document, checksum in connection.execute(SQL["read_evidence"], (key,)):
            if xxhash.xxh32_intdigest(document) != checksum:
                raise _damaged(identity, "a batch does not have its checksum")
            rows += map(_row_from, json.loads(document))
    except (*BAD_FILE, RecursionError) as error:
        raise _damaged(identity, f"a batch is none: {error}") from error
    return tuple(rows)


def _damaged(identity: Identity, why: str) -> StateDirectoryError:
    return StateDirectoryError(
        f"the evidence of revision {identity} cannot be read",
        f"DamagedEvidence: {why}",
        "it only documents past drops; restore a snapshot into a fresh state directory",
    )


def read_epochs(connection: sqlite3.Connection) -> dict[str, str]:
    """The last seen epoch by tier name; blocking.  A damaged one counts as never seen."""
    try:
        rows = connection.execute(SQL["read_epochs"]).fetchall()
    except BAD_FILE:
        return {}
    return {tier: epoch for tier, epoch, sum_ in rows if _epoch_checksum(tier, epoch) == sum_}


def _epoch_checksum(tier: str, epoch: str) -> int:
    return xxhash.xxh32_intdigest(repr((tier, epoch)).encode())


def _insertion(revision: str, rows: Sequence[EvidenceRow]) -> RowChange:
    document = json.dumps([_values(row) for row in rows], separators=(",", ":")).encode("ascii")
    checksum = xxhash.xxh32_intdigest(document)
    return RowChange(SQL["insert_evidence"], (revision, len(rows), document, checksum))


def _values(row: EvidenceRow) -> list[object]:
    """A row's fields in their order; the digest as hexadecimal."""
    return [
        row.member_key,
        row.dropped_tier,
        row.dropped_instance,
        row.evidence_tier,
        row.evidence_instance,
        row.evidence_sha256.hex(),
        row.evidence_epoch,
        row.verified_at_ms,
        row.operation_id,
        row.at_ms,
    ]


def _row_from(values: list[object]) -> EvidenceRow:
    if [type(value) for value in values] != _TYPES:
        raise ValueError("a row has other columns than were written")
    fields = dict(zip(EvidenceRow.__dataclass_fields__, values, strict=True))
    fields["evidence_sha256"] = bytes.fromhex(str(fields["evidence_sha256"]))
    return EvidenceRow(**fields)  # type: ignore[arg-type]
