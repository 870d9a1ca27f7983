"""Whose a cluster is: one store's, until a person gives it to another.  Layer: a tier; on the loop.

The owner is named by the key of a small object, because keys can be listed without a lease and
contents cannot be read without one.  It is hard-pinned in memory and offloaded like any other, so
it comes back with what the hosts kept.  A host that restarts on its folder also brings back owners
that were removed long ago.  So a claim has a rank: the highest counts, among equal ones those in
memory, and of those the first store's by name.  Whoever takes a cluster over is above all that were
before, and an owner puts its claim anew in each epoch, one higher.  Which rank this store has, and
who has refused it, is in the book.
A claim also has the term of the process that has put it, which tells the copies of one state
directory apart: each start puts a claim of its own and removes the one before, so that whoever goes
on with that finds it gone at his next look.  A start that finds a term that its directory has never
had is that of a copy, and yields; of two that are put at once the higher stays.
Invariants: a store that was refused stays so until a person says `adopt`, a copy until a person
says `store.term_above`; in a new epoch nothing is done before the hosts had time to bring back
whose the cluster is.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from weightctl.adapters.mooncake.client.codes import Meaning, meaning_of, told
from weightctl.adapters.mooncake.master.replicas import in_memory, is_there
from weightctl.adapters.mooncake.master.serving import threaded
from weightctl.adapters.mooncake.ownership.claims import (
    NO_CLAIM,
    OWNER_PREFIX,
    Rank,
    by_owner,
    named,
    owner_key,
)
from weightctl.adapters.shared.fencing import is_anothers, refuse_older
from weightctl.adapters.shared.ownership import refuse_foreign, tell_adopted
from weightctl.controller.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weightctl.adapters.mooncake.master.replicas import Entry
    from weightctl.adapters.mooncake.ownership.epoch import Epoch
    from weightctl.adapters.mooncake.ownership.small import SmallObjects
    from weightctl.adapters.mooncake.site import Site

_log = logging.getLogger(__name__)

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
        self._fence = context.fence if self._acts else None
        self._term = 0 if self._fence is None else self._fence.term
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
        """Make sure that the cluster is this store's, and this process's.

        Raises ForeignMediumError, FencedError, ReconcileError.  A dry run takes nothing.
        """
        async with self._taking:
            if not self.is_due:
                return
            epoch, refused_by = self._book.epoch, self._book.refused_by
            if refused_by and not self._adopts:
                self._refuse(refused_by)
            self._refuse_copy()
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
            await self._yield_to_copies(found)
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
        was_here = self._holder in by_owner(found) or self._book.rank >= 0
        if found and not was_here:
            return  # it is another store's, whatever else comes back
        wait_s = self._site.options.claim_s * (1.0 if was_here else NEWCOMER)
        left_s = self._watched_s + wait_s - now_s
        if left_s > 0:
            raise WatchedError(self._site.name, left_s)

    async def _decide(self, found: Mapping[str, Rank], *, is_new: bool) -> None:
        """Put the claim, or raise ForeignMediumError."""
        book, owners = self._book, by_owner(found)
        shown = owners.pop(self._holder, NO_CLAIM)
        mine = max(shown, Rank(book.rank, living=False))
        # What is only remembered is less than what lives: somebody acts for that.
        rivals = {
            owner: rank
            for owner, rank in owners.items()
            if self._is_above(owner, rank, mine) or (rank.living and shown == NO_CLAIM)
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
        elif is_new and mine != NO_CLAIM:
            number += 1
        key = owner_key(self._holder, number, self._term)
        if key not in found:
            try:
                found = await self._put(key, number)
            except TransientError as error:
                if is_new or adopting or shown == NO_CLAIM:
                    raise
                key = self._go_on_with(found, error)
        await to_thread.run_sync(book.set_claim, number, "")
        self._key = key
        await self._clear_away([old for old in found if old != key])
        for owner in rivals:
            tell_adopted(self._site.name, owner)

    async def _put(self, key: str, number: int) -> dict[str, Rank]:
        """Claim it, and see all claims; of two that do so at once the same one gives way."""
        await self._small.put(key)
        found, _ = await self._ask()
        owners = by_owner(found)
        owners.pop(self._holder, None)
        for rival, rank in owners.items():
            if self._is_above(rival, rank, Rank(number, living=True)):
                await self._remove([key], [key])  # left there, it would disown the other store, too
                await self._lose(rival)
        self._key = key
        if self._copies(found):
            await self._remove([key], [key])
            await self._yield_to_copies(found)
        return found

    def _go_on_with(self, found: Mapping[str, Rank], error: TransientError) -> str:
        """The claim of an earlier start, where memory has no room for this one's; tried again.

        Raises `error` when there is none.
        """
        mine = [key for key in found if named(key).store == self._holder]
        _log.warning(
            "%s stays this store's by an earlier claim, which a process with a copy of the state"
            " directory would take for its own: %s",
            self._site.name,
            error.why,
        )
        return max(mine, key=lambda key: (found[key], named(key).term))

    # --- copies of the state directory ---

    def _yields_to(self, term: int) -> bool:
        """Whether a term in a claim of this store is a copy's to which this process has to yield.

        Once it has its claim only a higher one is: whoever comes then is above it, or yields.
        """
        fence = self._fence
        return fence is not None and is_anothers(
            replace(fence, past=()) if self._key else fence, term
        )

    def _copies(self, found: Mapping[str, Rank]) -> list[int]:
        """The terms of copies of the state directory to which this process has to yield."""
        terms = [named(key).term for key in found if named(key).store == self._holder]
        return [term for term in terms if self._yields_to(term)]

    async def _yield_to_copies(self, found: Mapping[str, Rank]) -> None:
        """Remember for good that a copy acts.  Raises FencedError."""
        book, copies = self._book, self._copies(found)
        if copies:
            told = (book.rank, book.refused_by, max(copies))
            self._held, self._key = False, ""
            await to_thread.run_sync(book.set_claim, *told)
            self._refuse_copy()

    def _refuse_copy(self) -> None:
        """Raise FencedError while a copy is remembered to which this process has to yield."""
        if self._fence is not None:
            refuse_older(self._fence, self._book.fenced_by)

    def _is_above(self, owner: str, rank: Rank, mine: Rank) -> bool:
        """Whether another store's claim is above this one's: of two of one rank always the same."""
        return rank > mine or (rank == mine and owner < self._holder)

    async def _ask(self) -> tuple[dict[str, Rank], bool]:
        """Every claim by its key, and whether the marker of the epoch is not in memory."""
        admin, marker = self._site.serving.admin, self._epoch.marker

        def ask() -> tuple[list[str], Mapping[str, Entry]]:
            health = admin.health()
            listed = admin.all_keys(health, (OWNER_PREFIX,))
            keys = sorted(key for key in listed if named(key).store)
            asked = [*keys, *([marker] if marker else [])]
            return keys, admin.query(health, asked) if asked else {}

        keys, entries = await threaded(ask)
        is_new = not in_memory(entries.get(marker))
        return {
            key: Rank(named(key).number, living=bool(in_memory(entries.get(key))))
            for key in keys  # whatever else is answered is no claim
            if is_there(entries.get(key))
        }, is_new

    async def _clear_away(self, keys: list[str]) -> None:
        """Remove claims that are below this one.

        Raises TransientError when another store's, or a copy's, is still there after that.
        """
        fence = self._fence
        needed = [
            key
            for key in keys
            if named(key).store != self._holder
            or (fence is not None and is_anothers(fence, named(key).term))
        ]
        await self._remove(keys, needed)

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
            await to_thread.run_sync(book.set_claim, book.rank, owner, book.fenced_by)
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


def _is_absent(code: int) -> bool:
    return meaning_of(code) is Meaning.ABSENT
