"""Whose a cluster is: one store's, until a person gives it to another.  Layer: a tier; on the loop.

The owner is named by the key of a small object, because keys can be listed without a lease and
contents cannot be read without one.  It is hard-pinned in memory and offloaded like any other, so
it comes back with what the hosts kept.  A host that restarts on its folder also brings back owners
that were removed long ago; these lie on its disk alone, while a living one is in memory.
Invariant: a store that was refused once never takes the cluster because its owner is out of sight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from weightctl.adapters.mooncake.codes import Meaning, meaning_of, told
from weightctl.adapters.mooncake.engine import Engine
from weightctl.adapters.mooncake.replicas import in_memory, is_there
from weightctl.adapters.shared.ownership import refuse_foreign, tell_adopted
from weightctl.controller.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weightctl.adapters.mooncake.connection import Connection
    from weightctl.adapters.mooncake.replicas import Entry

OWNER_PREFIX = "weightctl-owner/"
POLL_S = 0.1


class DisownedError(TransientError):
    """The object that names this store as the owner of the cluster is not there any more."""


class Claim:
    """One store's claim on the cluster of a connection; a caller without a store has none."""

    def __init__(self, connection: Connection) -> None:
        context = connection.context
        self._connection = connection
        self._holder = context.holder
        self._taking = anyio.Lock()
        self._refused = ""
        """The other store that was seen to own it."""
        self.held = not context.holder
        """Whether the cluster was seen to be this store's, or nobody's for a dry run."""
        self.keys = [owner_key(context.holder)] if context.holder and not context.read_only else []
        """What is asked for with every look."""

    def check(self, entries: Mapping[str, Entry]) -> None:
        """Raise DisownedError when an answer does not have the key that is asked for."""
        for key in self.keys:
            if not is_there(entries.get(key)):
                self.held = False
                raise DisownedError(
                    f"cluster {self._connection.options.cluster}",
                    "the Master does not hold the object that names this store as its owner",
                    "it is looked at whose the cluster is",
                )

    async def take(self) -> None:
        """Make sure that the cluster is this store's.  Raises ForeignMediumError, ReconcileError.

        A dry run takes nothing.
        """
        async with self._taking:
            if self.held:
                return
            options, read_only = self._connection.options, self._connection.context.read_only
            where, found = f"cluster {options.cluster}", await self._owners()
            others = [owner for owner in found if owner != self._holder]
            if others and options.adopt and not read_only:
                for owner in others:
                    await self._remove(owner)
                    tell_adopted(where, owner)
                others = []
            elif not found and not options.adopt:
                others = [self._refused] if self._refused else []
            if others:
                self._refused = others[0]
                refuse_foreign(where, others[0], self._holder)
            if self._holder not in found and not read_only:
                await self._put(where)
            self.held = True

    async def _put(self, where: str) -> None:
        """Claim it; of two stores that do so at once the same one gives way."""
        await self._connection.put_small(owner_key(self._holder))
        rival = min(await self._owners(), default=self._holder)
        if rival < self._holder:
            await self._remove(self._holder)
            self._refused = rival
            refuse_foreign(where, rival, self._holder)

    async def _owners(self) -> list[str]:
        """Those in memory where there are any, else all: after a restart of the Master none is."""
        admin = self._connection.admin

        def ask() -> Mapping[str, Entry]:
            health = admin.health()
            keys = sorted(key for key in admin.all_keys(health) if key.startswith(OWNER_PREFIX))
            return admin.query(health, keys) if keys else {}

        entries = await to_thread.run_sync(ask, abandon_on_cancel=True)
        there = [key for key, entry in entries.items() if is_there(entry)]
        living = [key for key in there if in_memory(entries[key])]
        return sorted(key.removeprefix(OWNER_PREFIX) for key in living or there)

    async def _remove(self, owner: str) -> None:
        """Let a store own it no more; the offload of its object may hold that for a lease's time.

        Raises TransientError.
        """
        connection = self._connection
        clock, options = connection.context.clock, connection.options
        until_s = clock.monotonic_s() + options.lease_ttl_s + options.appear_s
        while True:
            async with connection.owner() as (worker, _):
                (code,) = await worker.call(Engine.remove, [owner_key(owner)])
            if code == 0 or meaning_of(code) is Meaning.ABSENT:
                return
            if clock.monotonic_s() >= until_s:
                what = f"the claim of store {owner} on cluster {options.cluster}"
                raise TransientError(what, told(code), "it is tried again")
            await clock.sleep(POLL_S)


def owner_key(holder: str) -> str:
    """The key whose presence says that the store `holder` owns the cluster."""
    return f"{OWNER_PREFIX}{holder}"
