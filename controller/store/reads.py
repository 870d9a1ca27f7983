"""What a store answers from memory.  Layer: store.

Never waits, also where it is asked to be awaited; what it gives is durable, and frozen values that
may be kept across awaits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.controller.core import queries
from weightctl.controller.core.identity import DEFAULT_TENANT, Identity
from weightctl.controller.core.records import LIST_LIMIT_DEFAULT
from weightctl.controller.store.arguments import typed
from weightctl.controller.store.part import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weightctl.controller.core.records import (
        ResidencyOperation,
        RevisionLease,
        RevisionMetadata,
        RevisionPage,
        RevisionView,
    )


class Reads(Part):
    """The requests that change nothing."""

    @typed
    async def get(self, *, identity: Identity) -> RevisionView:
        """GetWeightRevision: a record in any state, with its live leases counted."""
        return queries.get_revision(
            self._engine.state, identity=identity, now_ms=self._clock.wall_ms()
        )

    @typed
    async def list_revisions(
        self,
        *,
        namespace: str,
        resource_id: str,
        tenant_id: str = DEFAULT_TENANT,
        page_token: str = "",
        limit: int = LIST_LIMIT_DEFAULT,
    ) -> RevisionPage:
        """ListWeightRevisions: those of one resource, by revision and generation, in pages."""
        return queries.list_revisions(
            self._engine.state,
            namespace=namespace,
            resource_id=resource_id,
            tenant_id=tenant_id,
            page_token=page_token,
            limit=limit,
            now_ms=self._clock.wall_ms(),
        )

    @typed
    async def query_operation(
        self, *, operation_id: int, tenant_id: str = DEFAULT_TENANT
    ) -> ResidencyOperation:
        """QueryOperation; finished operations stay queryable."""
        return queries.query_operation(
            self._engine.state, operation_id=operation_id, tenant_id=tenant_id
        )

    def records(self) -> Iterator[RevisionMetadata]:
        """Every record as it is now, tombstones too; safe to keep across awaits."""
        return iter(tuple(self._engine.state.metadata.values()))

    @typed
    def record(self, *, identity: Identity) -> RevisionMetadata | None:
        """One record as it is now; None for an unknown identity."""
        return self._engine.state.metadata.get(identity)

    @typed
    def leases(self, *, identity: Identity) -> tuple[RevisionLease, ...]:
        """The live leases of a revision, empty for an unknown one."""
        return tuple(self._engine.state.active_leases(identity, self._clock.wall_ms()))

    def live_leases(self) -> int:
        """How many leases of all revisions are live."""
        return self._engine.state.live_leases(self._clock.wall_ms())

    @typed
    def lease(self, *, lease_id: int) -> RevisionLease | None:
        """One lease, live or not; None for an unknown id."""
        return self._engine.state.leases.get(lease_id)

    @typed
    def operation(self, *, identity: Identity) -> ResidencyOperation | None:
        """The operation that a revision runs now, None when idle or unknown."""
        record = self._engine.state.metadata.get(identity)
        return None if record is None else self._engine.state.current_operation(record)

    @typed
    def subscribe(self, callback: Callable[[Identity], None]) -> Callable[[], None]:
        """Call `callback(identity)` after each publication, a hint; returns how to stop it."""
        return self._engine.subscribe(callback)
