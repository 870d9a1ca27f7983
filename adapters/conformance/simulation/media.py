"""What the simulated tiers hold: reference media that tell whoever watches of every change."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Protocol

from weightctl.adapters.conformance.faults import Kind
from weightctl.adapters.conformance.reference import Name, ReferenceMedium, ReferenceTier, Stored
from weightctl.controller.core.observation import Member, Members, TierObservation
from weightctl.controller.core.tiers import Capabilities, TierProfile
from weightctl.controller.ports import DropItem, Fence, Outcome

LINGERS_S = 3.0
"""How long a dropped replica stays in sight where deletion is not immediate."""
LISTS_AFTER_S = 3.0
"""How far behind a listing is where it is not consistent; less than the loop's time to settle."""


class Watcher(Protocol):
    """Hears of what primitives do: of a removal when it is served, and when it has happened."""

    def added(self, tier: str, name: Name, stored: Stored) -> None: ...

    def served(self, tier: str, fence: Fence | None) -> None: ...

    def removed(self, tier: str, name: Name, stored: Stored) -> None: ...


class Silent:
    """Nobody watches."""

    def added(self, tier: str, name: Name, stored: Stored) -> None: ...

    def served(self, tier: str, fence: Fence | None) -> None: ...

    def removed(self, tier: str, name: Name, stored: Stored) -> None: ...


@dataclass(slots=True)
class SimMedium(ReferenceMedium):
    """The medium of one tier, and what the world does to it."""

    tier: str = ""
    nature: Capabilities = field(default_factory=Capabilities)
    clock: asyncio.AbstractEventLoop | None = None
    """On which it lingers and lags; None: it does neither."""
    watcher: Watcher = field(default_factory=Silent)
    fence: Fence | None = None
    """Of the removal that is being carried out."""
    changes: int = 0
    served_term: int = 0
    destroyed_s: dict[tuple[Name, str], float] = field(default_factory=dict)
    """When the world, not a primitive, destroyed or damaged a replica."""
    leaving: set[str] = field(default_factory=set)
    """Instances that were dropped and linger."""
    views: list[tuple[float, dict[Name, list[Stored]]]] = field(default_factory=list)
    """What there was, each since when; the past that a listing may show."""

    def add(self, name: Name, stored: Stored) -> None:
        self.put(name, stored)
        self.changes += 1
        self.watcher.added(self.tier, name, stored)

    def remove(self, name: Name, stored: Stored) -> None:
        self.watcher.served(self.tier, self.fence)
        if self.clock is None or self.nature.delete_is_immediate:
            self._gone(name, stored)
        elif stored.instance_id not in self.leaving:
            self.leaving.add(stored.instance_id)
            self.clock.call_later(LINGERS_S, self._gone, name, stored)

    def hide(self, name: Name, stored: Stored) -> None:
        self.watcher.served(self.tier, self.fence)
        super(SimMedium, self).hide(name, stored)
        self._seen()
        self.changes += 1
        self.watcher.removed(self.tier, name, stored)

    def listed(self) -> Mapping[Name, Sequence[Stored]]:
        if self.clock is None or self.nature.list_is_consistent:
            return self.stored
        then_s = self.clock.time() - LISTS_AFTER_S
        while len(self.views) > 1 and self.views[1][0] <= then_s:
            del self.views[0]
        return self.views[0][1] if self.views and self.views[0][0] <= then_s else {}

    def _gone(self, name: Name, stored: Stored) -> None:
        """A dropped replica is no longer there, unless the world was faster."""
        self.leaving.discard(stored.instance_id)
        if stored in self.stored.get(name, []):
            self._take(name, stored)
            self.changes += 1
            self.watcher.removed(self.tier, name, stored)

    def _take(self, name: Name, stored: Stored) -> None:
        super(SimMedium, self).remove(name, stored)
        self._seen()

    def _seen(self) -> None:
        """Keep what there is now for listings to come."""
        if self.clock is not None and not self.nature.list_is_consistent:
            copied = {name: [replace(one) for one in found] for name, found in self.stored.items()}
            self.views.append((self.clock.time(), copied))

    # --- what the world does ----------------------------------------------------------------------

    def put(self, name: Name, stored: Stored) -> None:
        """A replica is there, by nobody's primitive."""
        super(SimMedium, self).add(name, stored)
        self._seen()

    def every(self) -> list[tuple[Name, Stored]]:
        return [(name, stored) for name, found in self.stored.items() for stored in found]

    def lose(self, name: Name, stored: Stored, now_s: float) -> None:
        """One replica is gone by itself."""
        self._take(name, stored)
        self.destroyed_s[name, stored.instance_id] = now_s

    def rot(self, name: Name, stored: Stored, now_s: float, how: str = Kind.ROT) -> None:
        """Its bytes change by themselves: a bit, the tail, or all of them."""
        if not stored.content:
            return
        self.destroyed_s.setdefault((name, stored.instance_id), now_s)
        if how == Kind.TORN:
            stored.content[-1 - len(stored.content) // 2 :] = bytes(1 + len(stored.content) // 2)
            stored.content[-1] = (stored.content[-1] + 1) % 256
        elif how == Kind.OLD:
            stored.content[:] = bytes((byte + 1) % 256 for byte in stored.content)
        else:
            stored.content[0] = (stored.content[0] + 1) % 256  # twice does not heal

    def cut(self, name: Name, stored: Stored, now_s: float) -> None:
        """Its tail is gone; the same instance, as far as anybody can tell by its name."""
        if stored.content:
            self.destroyed_s.setdefault((name, stored.instance_id), now_s)
            del stored.content[len(stored.content) // 2 :]

    def forget(self, now_s: float, *, epoch: bool) -> None:
        """Everything is gone; an honest medium begins a new epoch."""
        for name, stored in self.every():
            self.lose(name, stored, now_s)
        if epoch:
            self.epoch += "'"


class Recorder(ReferenceTier):
    """The tier itself: notes under which fence it removes; tells no more than its profile says."""

    def __init__(
        self,
        medium: SimMedium,
        *,
        hot: bool,
        profile: TierProfile | None = None,
        holder: str = "",
        adopt: bool = False,
    ) -> None:
        super().__init__(medium.tier, medium, hot=hot, holder=holder, adopt=adopt)
        self.medium = medium
        self.profile = profile or self.profile

    async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
        seen = await super().observe(members, detail=detail)
        if self.profile.capabilities.checksum:
            return seen
        details = {index: replace(told, sha256=None) for index, told in seen.details.items()}
        return replace(seen, details=details)

    async def drop(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        self.medium.fence = fence
        return await super().drop(batch, fence)

    async def quarantine(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        self.medium.fence = fence
        return await super().quarantine(batch, fence)


def is_good(stored: Stored, member: Member) -> bool:
    """In sight, with the right bytes."""
    return not stored.hidden and sha256(stored.content).digest() == member.sha256
