"""What the simulated tiers hold: reference media that tell whoever watches of every change."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Protocol

from weightctl.adapters.conformance.faults import Kind
from weightctl.adapters.conformance.reference import Name, ReferenceMedium, ReferenceTier, Stored
from weightctl.controller.core.observation import Member
from weightctl.controller.ports import DropItem, Fence, Outcome


class Watcher(Protocol):
    """Hears of changes that primitives make, when they have just happened."""

    def added(self, tier: str, name: Name, stored: Stored) -> None: ...

    def removed(self, tier: str, name: Name, stored: Stored, fence: Fence | None) -> None: ...


class Silent:
    """Nobody watches."""

    def added(self, tier: str, name: Name, stored: Stored) -> None: ...

    def removed(self, tier: str, name: Name, stored: Stored, fence: Fence | None) -> None: ...


@dataclass(slots=True)
class SimMedium(ReferenceMedium):
    """The medium of one tier, and what the world does to it."""

    tier: str = ""
    watcher: Watcher = field(default_factory=Silent)
    fence: Fence | None = None
    """Of the removal that is being carried out."""
    changes: int = 0
    served_term: int = 0
    destroyed_s: dict[tuple[Name, str], float] = field(default_factory=dict)
    """When the world, not a primitive, destroyed or damaged a replica."""

    def add(self, name: Name, stored: Stored) -> None:
        super(SimMedium, self).add(name, stored)
        self.changes += 1
        self.watcher.added(self.tier, name, stored)

    def remove(self, name: Name, stored: Stored) -> None:
        super(SimMedium, self).remove(name, stored)
        self.changes += 1
        self.watcher.removed(self.tier, name, stored, self.fence)

    def hide(self, name: Name, stored: Stored) -> None:
        super(SimMedium, self).hide(name, stored)
        self.changes += 1
        self.watcher.removed(self.tier, name, stored, self.fence)

    # --- what the world does ----------------------------------------------------------------------

    def every(self) -> list[tuple[Name, Stored]]:
        return [(name, stored) for name, found in self.stored.items() for stored in found]

    def lose(self, name: Name, stored: Stored, now_s: float) -> None:
        """One replica is gone by itself."""
        ReferenceMedium.remove(self, name, stored)
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

    def forget(self, now_s: float, *, epoch: bool) -> None:
        """Everything is gone; an honest medium begins a new epoch."""
        for name, stored in self.every():
            self.lose(name, stored, now_s)
        if epoch:
            self.epoch += "'"


class Recorder(ReferenceTier):
    """The tier itself: notes under which fence it removes, and which term it has served."""

    def __init__(
        self, medium: SimMedium, *, hot: bool, holder: str = "", adopt: bool = False
    ) -> None:
        super().__init__(medium.tier, medium, hot=hot, holder=holder, adopt=adopt)
        self.medium = medium

    async def drop(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        self.medium.fence = fence
        return await super().drop(batch, fence)

    async def quarantine(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        self.medium.fence = fence
        return await super().quarantine(batch, fence)


def is_good(stored: Stored, member: Member) -> bool:
    """In sight, with the right bytes."""
    return not stored.hidden and sha256(stored.content).digest() == member.sha256
