"""Which replicas are known to be damaged.  Layer: store.

A verdict is durable before anything acts on it and survives restarts; it is no part of the op-log.
All of them are held in memory too, so asking never waits.  Bounded in all, the oldest go first: a
replica whose verdict went counts as unread, not as good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import xxhash

from weightctl.controller.core.damage import DamagedReplica
from weightctl.controller.core.identity import payload_group_id, text_bytes
from weightctl.controller.errors import StateDirectoryError
from weightctl.controller.store.commit import RowChange
from weightctl.controller.store.database import INTEGER_MAX
from weightctl.controller.store.statements import load

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from weightctl.controller.core.identity import Identity
    from weightctl.controller.store.engine import Engine

SQL = load("damage")
ROWS_MAX = 100_000
_TYPES = [bytes, str, bytes, str, str, bytes, int]

Place = tuple[str, str, str]
"""Group id, tier and member key; at most one replica lies there."""
Damage = dict[Place, DamagedReplica]
"""In the order in which they were recorded."""


class DamageBook:
    """The verdicts of one open store."""

    def __init__(self, engine: Engine, known: Damage) -> None:
        self._engine = engine
        self._rows = known
        self._groups = by_group(known)

    def rows(self, group_id: str) -> tuple[DamagedReplica, ...]:
        """The damaged replicas of a group, oldest verdict first."""
        return tuple(self._groups.get(group_id, {}).values())

    async def record(self, group_id: str, rows: Sequence[DamagedReplica]) -> None:
        """Write verdicts down, in the place of older ones on other instances.

        Durable when it returns; subscribers hear of it.  What is known already is left alone.
        Raises WeightError DURABILITY_FAILED.
        """
        fresh = [row for row in rows if not self._is_known(group_id, row)]
        if not fresh:
            return
        changes = [
            RowChange(SQL["record"], [_values(group_id, row) for row in fresh], many=True),
            RowChange(SQL["trim"], (ROWS_MAX,)),
        ]

        def publish() -> None:
            for row in fresh:
                self._put(group_id, row)
            owner = self._engine.state.groups.get(group_id)
            if owner is not None:
                self._engine.announce(owner)

        await self._engine.append_rows(f"damage in {group_id}", changes, publish=publish)

    async def forget(self, group_id: str, rows: Sequence[DamagedReplica]) -> None:
        """Take back exactly these verdicts: the replica is gone or has been read back right.

        Durable when it returns.  Raises WeightError DURABILITY_FAILED.
        """
        known = [row for row in rows if self._is_known(group_id, row)]
        if not known:
            return
        values = [_values(group_id, row)[:5] for row in known]

        def publish() -> None:
            for row in known:
                if self._is_known(group_id, row):
                    self._drop((group_id, row.tier, row.member_key))

        changes = [RowChange(SQL["forget"], values, many=True)]
        await self._engine.append_rows(f"damage in {group_id}", changes, publish=publish)

    def group_removed(self, group_id: str) -> None:
        """The group has left the directory, with its verdicts."""
        for place in tuple(self._groups.get(group_id, ())):
            self._drop(place)

    def _is_known(self, group_id: str, row: DamagedReplica) -> bool:
        known = self._rows.get((group_id, row.tier, row.member_key))
        return known is not None and (known.instance_id, known.epoch) == (
            row.instance_id,
            row.epoch,
        )

    def _put(self, group_id: str, row: DamagedReplica) -> None:
        place = (group_id, row.tier, row.member_key)
        self._drop(place)
        self._rows[place] = row
        self._groups.setdefault(group_id, {})[place] = row
        while len(self._rows) > ROWS_MAX:
            self._drop(next(iter(self._rows)))

    def _drop(self, place: Place) -> None:
        if self._rows.pop(place, None) is None:
            return
        group = self._groups[place[0]]
        del group[place]
        if not group:
            del self._groups[place[0]]


def verdicts_removal(identity: Identity) -> RowChange:
    """What finishing a delete changes here, in the same transaction."""
    return RowChange(SQL["forget_group"], (text_bytes(payload_group_id(identity)),))


def read_damage(connection: sqlite3.Connection) -> Damage:
    """Every verdict, oldest first; blocking.  Raises StateDirectoryError for a damaged row."""
    if connection.execute(SQL["exists"]).fetchone() is None:
        return {}
    found: Damage = {}
    for *values, checksum in connection.execute(SQL["read"]):
        if _checksum(values) != checksum:
            raise _unreadable("a row does not have its checksum")
        if [type(value) for value in values] != _TYPES:
            raise _unreadable("its columns have other types than were written")
        group_id, tier, key, instance, epoch, sha256, at_ms = values
        row = DamagedReplica(
            member_key=_text(key),
            tier=tier,
            instance_id=instance,
            epoch=epoch,
            found_sha256=sha256,
            at_ms=at_ms,
        )
        found[_text(group_id), tier, row.member_key] = row
    return found


def _unreadable(why: str) -> StateDirectoryError:
    return StateDirectoryError(
        "the verdicts on damaged replicas cannot be read",
        f"DamagedVerdict: {why}",
        "keep the state directory, and restore a snapshot into a fresh one",
    )


def by_group(known: Damage) -> dict[str, Damage]:
    """The same verdicts by group id."""
    groups: dict[str, Damage] = {}
    for place, row in known.items():
        groups.setdefault(place[0], {})[place] = row
    return groups


def _values(group_id: str, row: DamagedReplica) -> tuple[object, ...]:
    values = (
        text_bytes(group_id),
        row.tier,
        text_bytes(row.member_key),
        row.instance_id,
        row.epoch,
        row.found_sha256,
        min(row.at_ms, INTEGER_MAX),
    )
    return (*values, _checksum(values))


def _checksum(values: Iterable[object]) -> int:
    return xxhash.xxh32_intdigest(repr(tuple(values)).encode())


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
