"""Our puts that no host offloads, and putting them anew.  Layer: a tier; on the loop.

A host shows its memory to the Master a moment before its disk.  What is put there in between is
offloaded by nobody, ever: the Master notes an offload only when a put ends, for hosts whose disk it
knows then, and neither copies nor moves make it note one.  So such an object is removed and put
again, from the source of the import that brings it in.  Invariants: only for an import, whose
source is outside of every tier and still readable, and whose revision nobody can read yet; only
what this store has put, and while no cold copy of it is seen; a few times for each object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio import to_thread

from weightctl.adapters.mooncake.client.codes import Meaning, meaning_of, outcome_of_code
from weightctl.adapters.mooncake.client.engine import Engine
from weightctl.adapters.mooncake.master.replicas import LOCAL_DISK, in_memory
from weightctl.adapters.mooncake.ownership.book import NOBODY
from weightctl.adapters.shared.sources import opened_source
from weightctl.controller.ports import Retry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weightctl.adapters.mooncake.connection import Connection
    from weightctl.adapters.mooncake.master.replicas import Entry, ReplicaKind
    from weightctl.controller.core.observation import Member
    from weightctl.controller.ports import Fence, Outcome, StoreItem

TRIES = 2
"""Puts of one object after the first one; a host that offloads nothing is not helped by more."""
_KEYS_MAX = 10_000
"""Of imports that were given up; to forget them costs one more wait."""


class Belated:
    """What was waited for in vain, by key, and how often it was put anew."""

    def __init__(self, connection: Connection, kind: ReplicaKind) -> None:
        self._connection = connection
        self._kind = kind
        self._in_vain: set[str] = set()
        self._tries: dict[str, int] = {}

    def waited(self, left: Iterable[str], entries: Mapping[str, Entry], *, came: bool) -> None:
        """One wait has ended without a replica of those; came: others got theirs in it.

        While any comes, the hosts are at work, and these may only be later in the queue.
        """
        if self._kind is not LOCAL_DISK or came:
            return
        if len(self._in_vain) + len(self._tries) > _KEYS_MAX:
            self._in_vain.clear()
            self._tries.clear()
        self._in_vain |= {key for key in left if self._is_bare(key, entries.get(key))}

    def ended(self, keys: Iterable[str]) -> None:
        """Those have their replica."""
        for key in keys:
            self._in_vain.discard(key)
            self._tries.pop(key, None)

    def is_due(self, member: Member, entry: Entry, fence: Fence) -> bool:
        """Whether to put it anew."""
        row = self._connection.book.get(member.key)
        ours = row is not None and row.sha256 == member.sha256 and bool(row.owner)
        return (
            member.key in self._in_vain
            and self._tries.get(member.key, 0) < TRIES
            and fence.operation_id == 0
            and ours
            and self._is_bare(member.key, entry)
        )

    async def take_back(self, item: StoreItem, fence: Fence) -> Outcome | None:
        """Remove the object; None when that is done.  Nobody else may be putting it.

        Reading the source first proves that the import goes on.  A removal of which no answer came
        may still happen, so it is the last one here.  Raises ReconcileError, OSError.
        """
        connection, key = self._connection, item.member.key
        async with opened_source(item) as source:
            if source.instance_id:
                return Retry(detail=f"{NEVER}, and its source is a replica itself")
            await source.read_into(0, memoryview(bytearray(1)))
        await to_thread.run_sync(connection.book.admit, fence)
        entries, _ = await connection.look.entries([key])
        if not self._is_bare(key, entries.get(key)) or connection.reading[key]:
            return Retry(detail="it is looked at again")
        self._in_vain.discard(key)
        async with connection.clients.owner() as worker:
            (code,) = await worker.call(Engine.remove, [key])
        if code != 0 and (meaning := meaning_of(code)) is not Meaning.ABSENT:
            self._in_vain.add(key)
            if meaning is Meaning.UNKNOWN:
                self._tries[key] = TRIES
            until_ms = connection.reads.leased_until_ms(item.member.group_id)
            return outcome_of_code(code, busy_until_ms=until_ms)
        self._tries[key] = self._tries.get(key, 0) + 1
        return None

    def told(self, key: str) -> str:
        """What follows from a wait in vain, for people; empty before there was one."""
        if key not in self._in_vain:
            return ""
        if self._tries.get(key, 0) >= TRIES:
            return "; it is not put anew any more: see whether its host's disk takes anything"
        return f"; {NEVER}: an import puts it anew, anything else has to be deleted and imported"

    def _is_bare(self, key: str, entry: Entry | None) -> bool:
        """Whether it is complete in memory, and no other kind of copy of it can be of its put."""
        if entry is None or not entry.ok or not in_memory(entry) or entry.disk or entry.nof:
            return False
        row = self._connection.book.get(key)
        return not entry.local_disk or (row is not None and row.keeper == NOBODY)


NEVER = "what was put before its host had its disk is never offloaded"
