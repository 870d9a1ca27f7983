"""A tier that never answers, in the place of one that could not be opened.  Layer: runtime.

Everything in it is UNKNOWN and nothing can be done there, so nothing is ever taken for absent and
nothing is dropped on its account.  A restart tries the real one again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Self

from weightctl.controller.core.observation import unknown_observation
from weightctl.controller.errors import TransientError
from weightctl.controller.ports import Retry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weightctl.controller.core.observation import Member, Members, TierObservation
    from weightctl.controller.core.tiers import TierCapacity, TierProfile
    from weightctl.controller.ports import (
        DropItem,
        Fence,
        InventoryItem,
        Limiter,
        Outcome,
        StoreItem,
    )

PROBE_S = 60.0


class SilentTier:
    """Stands for a tier with this profile; `problem` says why it could not be opened."""

    def __init__(self, profile: TierProfile, problem: str) -> None:
        self.profile = profile
        self.problem = problem

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Nothing is open."""

    async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
        """Every member is UNKNOWN."""
        del detail
        return unknown_observation(len(members), self.problem)

    async def store(
        self, batch: Sequence[StoreItem], fence: Fence, *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """Nothing can be stored."""
        del fence, limit
        return self._refused(batch)

    async def drop(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """Nothing can be dropped."""
        del fence
        return self._refused(batch)

    async def quarantine(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """Nothing can be moved."""
        del fence
        return self._refused(batch)

    def open(self, member: Member) -> NoReturn:
        """Nothing can be read.  Raises TransientError."""
        raise self._error(f"replica {member.key}")

    async def verify(
        self, batch: Sequence[Member], *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """Nothing can be read back."""
        del limit
        return self._refused(batch)

    async def inventory(self, group_id: str | None = None) -> Mapping[str, Sequence[InventoryItem]]:
        """Raises TransientError."""
        raise self._error(f"inventory of {group_id or 'all groups'}")

    async def capacity(self) -> TierCapacity:
        """Raises TransientError."""
        raise self._error("capacity")

    def map_path(self, member: Member) -> str | None:
        """Nothing can be mapped."""
        del member
        return None

    def _refused(self, batch: Sequence[object]) -> Sequence[Outcome]:
        return [Retry(after_s=PROBE_S, detail=self.problem)] * len(batch)

    def _error(self, what: str) -> TransientError:
        return TransientError(
            f"{what} of tier {self.profile.name}",
            f"{TransientError.reason}: {self.problem}",
            "mend it and restart; `weightctl doctor` checks it",
        )
