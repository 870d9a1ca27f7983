"""Which members are in which state, as masks.  Layer: core (pure).

`Masks` holds the observation as big integers with one 0x01 byte per selected member, so that set
algebra over a million members is a few machine-speed operations.  It decides nothing: that is the
planner's.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from weightctl.controller.core import aggregate as agg
from weightctl.controller.core.observation import MemberState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from weightctl.controller.core.plan import Situation

GIVEN_UP = 8
"""Failures in a row after which a replica counts as none where another one can be had."""


class Masks:
    """The members' states as masks.  A mask is an int; byte i is 1 where member i is selected."""

    def __init__(self, situation: Situation) -> None:
        self._states = {view.profile.name: view.states for view in situation.views}
        self._failures = {view.profile.name: view.failures for view in situation.views}
        self.size = len(situation.members)
        self.everyone = int.from_bytes(b"\x01" * self.size, "little")
        self.folded = agg.fold(situation.views, self.size)
        index = situation.facts.manifest_index
        self.manifest = 0 if index is None else 1 << (8 * index)

    def classify(self, rule: Callable[[int], int]) -> Callable[[int], int]:
        """A function from a verdict to the mask of the members whose flags give it."""
        verdicts = self.folded.translate(agg.table(rule))

        def members_with(wanted: int) -> int:
            if wanted not in verdicts:
                return 0
            return _mask(verdicts.translate(_equals(wanted)))

        return members_with

    def flagged(self, flags: int) -> int:
        """Members with any of the flags."""
        return _mask(self.folded.translate(_any_of(flags)))

    def state(self, tier: str, *wanted: MemberState) -> int:
        """Members in one of the wanted states in that tier."""
        return _mask(agg.has_state(self._states[tier], *wanted))

    def readable(self, tier: str) -> int:
        """Members with a readable replica in that tier."""
        return _mask(agg.readable_mask(self._states[tier]))

    def present(self, tier: str) -> int:
        """Members of which that tier holds a finished replica, right or wrong."""
        return self.state(tier, MemberState.COMPLETE, MemberState.VERIFIED, MemberState.CORRUPT)

    def union(self, tiers: Iterable[str]) -> int:
        """Members of which any of the tiers holds a finished replica."""
        held = 0
        for tier in tiers:
            held |= self.present(tier)
        return held

    def given_up(self, tier: str) -> int:
        """Members that have so often failed in that tier that nothing should rest on it."""
        failures = self._failures[tier]
        return _mask(failures.translate(_at_least(GIVEN_UP))) if failures else 0

    def hoped(self, tier: str) -> int:
        """Members with a replica in that tier that is readable as far as is known."""
        return self.readable(tier) & ~self.given_up(tier)

    def fewer_than(self, copies: int, tiers: Iterable[str]) -> int:
        """Members with fewer replicas than `copies` to rest on in these tiers."""
        counts = sum(self.hoped(tier) for tier in tiers).to_bytes(self.size, "little")
        return _mask(counts.translate(_below(copies)))

    def by_failures(self, tiers: Sequence[str], *, forgiven: int = 0) -> Iterator[tuple[str, int]]:
        """(tier, members), so that each member meets first the tiers where least has failed.

        Among equals the given order holds; the first `forgiven` failures count for none.  Every
        pair of a member and a tier comes exactly once, so that none is given up by this alone.
        """
        levels = {tier: _levels(self._failures[tier], forgiven) for tier in tiers}
        for level in sorted({0}.union(*levels.values())):
            for tier in tiers:
                if levels[tier]:
                    yield tier, _mask(levels[tier].translate(_equals(level)))
                elif not level:
                    yield tier, self.everyone


def _mask(flags: bytes) -> int:
    return int.from_bytes(flags, "little")


def _levels(failures: bytes, forgiven: int) -> bytes:
    return failures.translate(_less(forgiven)) if failures else b""


# Tables for `bytes.translate`; building one costs more than a small group's whole plan.


@lru_cache(maxsize=64)
def _equals(wanted: int) -> bytes:
    return bytes(value == wanted for value in range(256))


@lru_cache(maxsize=256)
def _any_of(flags: int) -> bytes:
    return bytes(bool(value & flags) for value in range(256))


@lru_cache(maxsize=64)
def _below(copies: int) -> bytes:
    return bytes(count < copies for count in range(256))


@lru_cache(maxsize=64)
def _at_least(count: int) -> bytes:
    return bytes(value >= count for value in range(256))


@lru_cache(maxsize=64)
def _less(count: int) -> bytes:
    return bytes(max(value - count, 0) for value in range(256))
