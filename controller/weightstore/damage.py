"""What a reader does about a damaged replica: confirm, write down, go on.  Layer: weightstore.

A wrong digest on the way may be the way's fault, so the tier reads the replica back itself; only
what it finds wrong too becomes a durable verdict, on the very instance that it read.  Nothing here
ends a load: without a verdict the reader goes on with the next replica all the same.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from weightctl.controller.core.damage import DamagedReplica
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import WeightctlError
from weightctl.controller.ports import Corrupt
from weightctl.controller.weightstore.primitives import as_members, observe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weightctl.controller.core.observation import Member
    from weightctl.controller.ports import Clock, Limiter, Tier
    from weightctl.controller.store.store import WeightMetadataStore

SLOWEST_BYTES_PER_S = 4 * 1024 * 1024
"""A tier that reads a replica back slower than this is not waited for."""
_log = logging.getLogger("weightctl.weightstore")


@dataclass(frozen=True, slots=True, kw_only=True)
class DamageReports:
    """The known damage of one payload group, and how to add to it."""

    store: WeightMetadataStore
    clock: Clock
    group_id: str
    deadline_s: float
    """For one answer of a tier; reading back gets more by its size."""
    limits: Mapping[str, Limiter]
    """The bandwidth of each tier that has one, by its name."""

    def known(self) -> tuple[DamagedReplica, ...]:
        """Every replica of the group that is known to be damaged."""
        return self.store.damage.rows(self.group_id)

    async def confirm(self, tier: Tier, member: Member) -> None:
        """Have the tier read the replica back; if it finds it wrong, make that durable."""
        try:
            row = await self._read_back(tier, member)
            if row is not None:
                await self.store.damage.record(self.group_id, [row])
        except WeightctlError as error:
            name = tier.profile.name
            _log.warning("damage of %s in %s is not confirmed: %s", member.key, name, error)

    async def _read_back(self, tier: Tier, member: Member) -> DamagedReplica | None:
        outcome = None
        limit = self.limits.get(tier.profile.name)
        with anyio.move_on_after(self.deadline_s + member.size_bytes / SLOWEST_BYTES_PER_S):
            outcome = next(iter(await tier.verify([member], limit=limit)), None)
        if not isinstance(outcome, Corrupt):
            return None
        asked = as_members(self.group_id, [member])
        seen = await observe(tier, asked, self.deadline_s, detail=(0,))
        detail = seen.details.get(0)
        if (
            detail is None
            or seen.states[0] != MemberState.COMPLETE
            or detail.instance_id != outcome.instance_id
        ):
            return None  # another copy lies there now
        return DamagedReplica(
            member_key=member.key,
            tier=tier.profile.name,
            instance_id=outcome.instance_id,
            epoch=seen.epoch,
            found_sha256=outcome.got,
            at_ms=self.clock.wall_ms(),
        )
