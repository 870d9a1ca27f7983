"""Whose a cluster is: one store's, until a person gives it to another.  Layer: a tier; on the loop.

The owner is named by the key of a small object, because keys can be listed without a lease and
contents cannot be read without one.  It is hard-pinned in memory and offloaded like any other, so
it comes back with what the hosts kept.  A host that restarts on its folder also brings back owners
that were removed long ago.  So a claim has a rank: the highest counts, among equal ones those in
memory, and of those the first store's by name.  Whoever takes a cluster over is above all that were
before, and an owner puts its claim anew in each epoch, one higher.  Which rank this store has, and
who has refused it, is in the book.
Invariants: a store that was refused stays so until a person says `adopt`; in a new epoch nothing is
done before the hosts had time to bring back whose the cluster is.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, NamedTuple

import anyio
from anyio import to_thread

from weightctl.adapters.mooncake.client.codes import Meaning, meaning_of, told
from weightctl.adapters.mooncake.master.replicas import in_memory, is_there
from weightctl.adapters.mooncake.master.serving import threaded
from weightctl.adapters.shared.ownership import refuse_foreign, tell_adopted
from weightctl.controller.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weightctl.adapters.mooncake.master.replicas import Entry
    from weightctl.adapters.mooncake.ownership.epoch import Epoch
    from weightctl.adapters.mooncake.ownership.small import SmallObjects
    from weightctl.adapters.mooncake.site import Site

_log = logging.getLogger(__name__)

OWNER_PREFIX = "weightctl-owner/"
_CLAIM = re.compile(OWNER_PREFIX + r"([^,/\x00-\x1f\x7f]+)(?:/(\d{1,18}))?")
POLL_S = 0.1
NEWCOMER = 1.5
"""How much longer a store waits that never had the cluster: an owner comes first."""
_AGAIN_S = (10.0, 3600.0)
"""Pause until the owners are asked for again in one epoch, at first and at last: it doubles."""


class DisownedError(TransientError):
    """The object that names this store as the owner of the cluster is not there any more."""


class WatchedError(TransientError):
    """In `left_s` it will be seen whose the cluster is."""

    def __init__(self, where: str, left_s: float) -> None:
        super().__init__(
            where,
            "it is new to this store, its Master was restarted, or the host died that had its"
            f" marker in memory: for another {left_s:.1f} s its hosts may bring back whose it is"
            " (claim_s)",
            "it goes on by itself",
        )
        self.left_s = left_s


class Rank(NamedTuple):
    """How one claim stands beside others: the greatest is the owner."""

    number: int
    living: bool
    """Whether it is in memory: not only what a host has brought back from its disk."""


_NONE = Rank(-1, living=False)


class Claim:
    """One store's claim on a cluster; a caller without a store has none."""

    def __init__(self, site: Site, small: SmallObjects, epoch: Epoch) -> None:
        context = site.context
        self._site = site
        self._small = small
        self._epoch = epoch
        self._book = site.book
        self._clock = context.clock
        self._holder = context.holder
        self._acts = bool(context.holder) and not context.read_only
        self._adopts = site.options.adopt and self._acts
        """Until the first time: a later owner is not taken from by what was left in a file."""
        self._taking = anyio.Lock()
        self._held = not context.holder
        self._key = ""
        self._judged: str | None = None
        """The epoch that was over when it was last decided whose the cluster is."""
        self._watched_s: float | None = None
        """Since when an epoch is watched that is not this store's yet."""
        self._pause_s = _AGAIN_S[0]
        self._again_s = 0.0

    @property
    def keys(self) -> list[str]:
        """What is asked for with every look."""
        return [self._key] if self._key else []

    @property
    def is_due(self) -> bool:
        """Whether it has to be asked whose the cluster is."""
        if not self._held:
            return True
        return self._acts and self._clock.monotonic_s() >= self._again_s

    def check(self, entries: Mapping[str, Entry]) -> None:
        """Raise DisownedError when an answer does not have the key that is asked for."""
        for key in self.keys:
            if not is_there(entries.get(key)):
                self._held = False
                raise DisownedError(
                    self._site.name,
                    "the Master does not hold the object that names this store as its owner",
                    "it is looked at whose the cluster is",
                )

    def forgotten(self) -> None:
        """The marker of the epoch is gone: whose the cluster is has to be seen anew."""
        if self._holder and self._judged != self._book.epoch:
            self._held = False

    async def take(self) -> None:
        """Make sure that the cluster is this store's.  Raises ForeignMediumError, ReconcileError.

        A dry run takes nothing.
        """
        async with self._taking:
            if not self.is_due:
                return
            epoch, refused_by = self._book.epoch, self._book.refused_by
            if refused_by and not self._adopts:
                self._refuse(refused_by)
            if self._held:
                await self._site.serving.health()  # a Master that is away is no list that is late
                # Whoever gives up waiting for the list does not ask at once again.
                self._pause_s = min(2 * self._pause_s, _AGAIN_S[1])
                self._again_s = self._clock.monotonic_s() + self._pause_s
            try:
                found, is_new = await self._ask()
            except TransientError as error:
                self._watched_s = None
                if not self._held:
                    raise
                self._put_off(error)
                return
            self._again_s = 0.0
            self._site.serving.standing.lists_owners()
            is_new = is_new and self._judged != epoch
            if is_new:
                self._held = False
                self._watch(found)
            await self._decide(found, is_new=is_new)
            if is_new:
                self._judged, self._watched_s, self._pause_s = epoch, None, _AGAIN_S[0]
            self._again_s = self._clock.monotonic_s() + self._pause_s
            self._held, self._adopts = True, False

    def _put_off(self, error: TransientError) -> None:
        """Stay the owner: the claim itself is asked for with every look, the others later again."""
        self._again_s = self._clock.monotonic_s() + self._pause_s
        why = f"who else claims it could not be listed, and is asked later: {error.why}"
        self._site.serving.standing.lists_owners(why)
        _log.warning("%s stays this store's: %s", self._site.name, why)

    def _watch(self, found: Mapping[str, Rank]) -> None:
        """Raise WatchedError while the hosts may still bring a claim back."""
        if self._adopts or not self._acts:
            return
        now_s = self._clock.monotonic_s()
        if self._watched_s is None:
            self._watched_s = now_s
        was_here = self._holder in _by_owner(found) or self._book.rank >= 0
        if found and not was_here:
            return  # it is another store's, whatever else comes back
        wait_s = self._site.options.claim_s * (1.0 if was_here else NEWCOMER)
        left_s = self._watched_s + wait_s - now_s
        if left_s > 0:
            raise WatchedError(self._site.name, left_s)

    async def _decide(self, found: Mapping[str, Rank], *, is_new: bool) -> None:
        """Put the claim, or raise ForeignMediumError."""
        book, owners = self._book, _by_owner(found)
        shown = owners.pop(self._holder, _NONE)
        mine = max(shown, Rank(book.rank, living=False))
        # What is only remembered is less than what lives: somebody acts for that.
        rivals = {
            owner: rank
            for owner, rank in owners.items()
            if self._is_above(owner, rank, mine) or (rank.living and shown == _NONE)
        }
        adopting = self._adopts and bool(rivals or book.refused_by)
        if rivals and not adopting:
            await self._lose(max(rivals, key=lambda owner: rivals[owner]))
        if not self._acts:
            return
        number = max(mine.number, 0)
        if adopting:
            highest = max(rank.number for rank in (*owners.values(), mine))
            number = max(highest + 1, self._clock.wall_ms())
        elif is_new and mine != _NONE:
            number += 1
        key = owner_key(self._holder, number)
        if key not in found:
            await self._put(key, number)
        await to_thread.run_sync(book.set_claim, number, "")
        self._key = key
        await self._clear_away([old for old in found if old != key])
        for owner in rivals:
            tell_adopted(self._site.name, owner)

    async def _put(self, key: str, number: int) -> None:
        """Claim it; of two stores that do so at once the same one gives way."""
        await self._small.put(key)
        owners = _by_owner((await self._ask())[0])
        for rival, rank in owners.items():
            if self._is_above(rival, rank, Rank(number, living=True)):
                await self._remove([key], [key])  # left there, it would disown the other store, too
                await self._lose(rival)

    def _is_above(self, owner: str, rank: Rank, mine: Rank) -> bool:
        """Whether another store's claim is above this one's: of two of one rank always the same."""
        return rank > mine or (rank == mine and owner < self._holder)

    async def _ask(self) -> tuple[dict[str, Rank], bool]:
        """Every claim by its key, and whether the marker of the epoch is not in memory."""
        admin, marker = self._site.serving.admin, self._epoch.marker

        def ask() -> tuple[list[str], Mapping[str, Entry]]:
            health = admin.health()
            listed = admin.all_keys(health, (OWNER_PREFIX,))
            keys = sorted(key for key in listed if _CLAIM.fullmatch(key))
            asked = [*keys, *([marker] if marker else [])]
            return keys, admin.query(health, asked) if asked else {}

        keys, entries = await threaded(ask)
        is_new = not in_memory(entries.get(marker))
        return {
            key: Rank(_parsed(key)[1], living=bool(in_memory(entries.get(key))))
            for key in keys  # whatever else is answered is no claim
            if is_there(entries.get(key))
        }, is_new

    async def _clear_away(self, keys: list[str]) -> None:
        """Remove claims that are below this store's.

        Raises TransientError when another store's is still there after that.
        """
        await self._remove(keys, [key for key in keys if _parsed(key)[0] != self._holder])

    async def _remove(self, keys: list[str], needed: list[str]) -> None:
        """Remove claims; the offload of one may hold that for a lease.

        Raises TransientError when one of those that are needed is still there after that.
        """
        clock, options = self._clock, self._site.options
        until_s = clock.monotonic_s() + options.lease_ttl_s + options.appear_s
        while keys:
            codes = dict(zip(keys, await self._small.remove(keys), strict=True))
            left = [key for key in keys if codes[key] and not _is_absent(codes[key])]
            keys = [key for key in left if key in needed]
            if keys and clock.monotonic_s() >= until_s:
                what = f"the claim {keys[0]} on {self._site.name}"
                raise TransientError(what, told(codes[keys[0]]), "it is tried again")
            if keys:
                await clock.sleep(POLL_S)

    async def _lose(self, owner: str) -> None:
        """Remember for good that the cluster is another store's.  Raises ForeignMediumError."""
        book = self._book
        if self._acts:
            await to_thread.run_sync(book.set_claim, book.rank, owner)
        self._refuse(owner)

    def _refuse(self, owner: str) -> None:
        self._held, self._key = False, ""
        refuse_foreign(
            self._site.name,
            owner,
            self._holder,
            instead="give this store another cluster",
            section="in [mooncake] for one start",
        )


def owner_key(holder: str, number: int = 0) -> str:
    """The key whose presence says that the store `holder` owns the cluster, with that rank."""
    return f"{OWNER_PREFIX}{holder}" + (f"/{number}" if number else "")


def _parsed(key: str) -> tuple[str, int]:
    """(store, rank) that a key names."""
    match = _CLAIM.fullmatch(key)
    return ("", 0) if match is None else (match[1], int(match[2] or 0))


def _by_owner(found: Mapping[str, Rank]) -> dict[str, Rank]:
    """The highest rank of each store."""
    owners: dict[str, Rank] = {}
    for key, rank in found.items():
        owner = _parsed(key)[0]
        owners[owner] = max(rank, owners.get(owner, rank))
    return owners


def _is_absent(code: int) -> bool:
    return meaning_of(code) is Meaning.ABSENT
