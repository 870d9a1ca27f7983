"""The requests of the store that change leases.  Layer: store.

Each is one durable mutation, in turn with the others of its revision.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from weightctl.controller.core import leases as lease_rules
from weightctl.controller.core.identity import DEFAULT_TENANT, Identity
from weightctl.controller.store.arguments import typed
from weightctl.controller.store.engine import LEASE
from weightctl.controller.store.part import Part

if TYPE_CHECKING:
    from collections.abc import Hashable

    from weightctl.controller.core.mutations import LeaseMutation
    from weightctl.controller.core.records import RevisionLease
    from weightctl.controller.core.state import WeightState


class LeaseRequests(Part):
    """Acquire, renew, release, expire."""

    @typed
    async def acquire_lease(
        self, *, identity: Identity, expected_metadata_generation: int, holder: str, ttl_ms: int
    ) -> RevisionLease:
        """AcquireWeightRevisionLease; a holder that has a live one gets that one again."""
        return await self._engine.mutate(
            identity,
            partial(
                lease_rules.prepare_acquire,
                identity=identity,
                expected_metadata_generation=expected_metadata_generation,
                holder=holder,
                ttl_ms=ttl_ms,
            ),
            LEASE,
        )

    @typed
    async def renew_lease(
        self, *, lease_id: int, ttl_ms: int, tenant_id: str = DEFAULT_TENANT
    ) -> RevisionLease:
        """Renew; never shortens."""
        return await self._engine.mutate(
            self._lease_key(lease_id),
            partial(
                lease_rules.prepare_renew,
                lease_id=lease_id,
                ttl_ms=ttl_ms,
                tenant_id=tenant_id,
            ),
            LEASE,
        )

    @typed
    async def release_lease(self, *, lease_id: int, tenant_id: str = DEFAULT_TENANT) -> None:
        """Release; an unknown id is a success."""
        await self._engine.mutate(
            self._lease_key(lease_id),
            partial(_prepare_release, lease_id=lease_id, tenant_id=tenant_id),
            LEASE,
        )

    @typed
    async def expire_leases(self, *, identity: Identity | None = None) -> tuple[RevisionLease, ...]:
        """Erase the leases that are dead now, of one revision or of all; gives those erased.

        A renewal that comes first wins.
        """
        return await self._engine.expire(identity)

    def _lease_key(self, lease_id: int) -> Hashable:
        lease = self._engine.state.leases.get(lease_id)
        return ("lease", lease_id) if lease is None else lease.identity


def _prepare_release(
    state: WeightState, *, lease_id: int, tenant_id: str, now_ms: int
) -> LeaseMutation:
    del now_ms  # a lease may be released dead or alive
    return lease_rules.prepare_release(state, lease_id=lease_id, tenant_id=tenant_id)
