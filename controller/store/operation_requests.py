"""The requests of the store that change operations.  Layer: store.

Each is one durable mutation, in turn with the others of its revision.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from weightctl.controller.core import operations, starts
from weightctl.controller.core.identity import Identity
from weightctl.controller.core.records import Availability, Residency
from weightctl.controller.store.arguments import typed
from weightctl.controller.store.engine import OPERATION
from weightctl.controller.store.part import Part

if TYPE_CHECKING:
    from collections.abc import Hashable

    from weightctl.controller.core.records import ResidencyOperation


class OperationRequests(Part):
    """Start, repair, progress, finish."""

    @typed
    async def start_residency_operation(
        self,
        *,
        identity: Identity,
        expected_metadata_generation: int,
        target_residency: Residency,
        member_count: int,
    ) -> ResidencyOperation:
        """StartWeightResidencyOperation; `member_count` was observed just now."""
        return await self._engine.mutate(
            identity,
            partial(
                starts.prepare_start,
                identity=identity,
                expected_metadata_generation=expected_metadata_generation,
                target_residency=target_residency,
                member_count=member_count,
            ),
            OPERATION,
        )

    @typed
    async def start_repair(
        self,
        *,
        identity: Identity,
        expected_metadata_generation: int,
        target_residency: Residency,
        member_count: int,
        copies_short: bool = False,
    ) -> ResidencyOperation:
        """Start REPAIRING a DEGRADED revision, or one with fewer copies than its policy asks."""
        return await self._engine.mutate(
            identity,
            partial(
                starts.prepare_repair,
                identity=identity,
                expected_metadata_generation=expected_metadata_generation,
                target_residency=target_residency,
                member_count=member_count,
                copies_short=copies_short,
            ),
            OPERATION,
        )

    @typed
    async def update_progress(
        self,
        *,
        operation_id: int,
        processed_members: int,
        total_members: int,
        cursor: str,
        availability: Availability,
        residency: Residency,
    ) -> ResidencyOperation:
        """UpdateOperationProgress with what was observed."""
        return await self._engine.mutate(
            self._operation_key(operation_id),
            partial(
                operations.prepare_progress,
                operation_id=operation_id,
                processed_members=processed_members,
                total_members=total_members,
                cursor=cursor,
                availability=availability,
                residency=residency,
            ),
            OPERATION,
        )

    @typed
    async def finish_operation(
        self, *, operation_id: int, observed_residency: Residency
    ) -> ResidencyOperation:
        """FinishOperation; the caller has observed the whole group there."""
        return await self._engine.mutate(
            self._operation_key(operation_id),
            partial(
                operations.prepare_finish,
                operation_id=operation_id,
                observed_residency=observed_residency,
            ),
            OPERATION,
        )

    def _operation_key(self, operation_id: int) -> Hashable:
        operation = self._engine.state.operations.get(operation_id)
        return ("operation", operation_id) if operation is None else operation.identity
