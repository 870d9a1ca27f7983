"""A revision lease that stays alive while bytes flow.  Layer: weightstore.

Owns acquiring, renewing every min(ttl / 3, 30 s) and releasing in every case, cancellation
included.  A renewal that failed is raised between transfers by `check`, and at the end if nothing
else failed.  Bytes that were copied while the lease may have been dead are not reported as loaded.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from weightctl.controller.errors import ErrorCode, WeightctlError, WeightError
from weightctl.controller.weightstore.parallel import FINISH_S, finished

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from weightctl.controller.core.records import RevisionLease, RevisionMetadata
    from weightctl.controller.ports import Clock
    from weightctl.controller.store.store import WeightMetadataStore

RENEW_S_MAX = 30.0
RENEW_S_MIN = 0.001


class LeaseKeeper:
    """A held lease; made by `held_lease`."""

    def __init__(
        self, store: WeightMetadataStore, clock: Clock, lease: RevisionLease, ttl_ms: int
    ) -> None:
        self._store = store
        self._clock = clock
        self._ttl_ms = ttl_ms
        self._failure: WeightctlError | None = None
        self.lease = lease

    def check(self) -> None:
        """Raise what a renewal failed with, or LEASE_EXPIRED when the lease is not live now."""
        if self._failure is not None:
            raise self._failure
        if self._clock.wall_ms() >= self.lease.expires_at_ms:
            raise WeightError(
                ErrorCode.LEASE_EXPIRED,
                f"lease {self.lease.lease_id} on {self.lease.identity}",
                "it expired before the transfer ended, so the copy cannot be trusted",
                "load again with a longer ttl",
            )

    async def renew_until_cancelled(self) -> None:
        """Renew in good time; the first refusal is kept for `check` and ends the renewing."""
        interval_s = max(RENEW_S_MIN, min(self._ttl_ms / 3000, RENEW_S_MAX))
        while True:
            await self._clock.sleep(interval_s)
            try:
                self.lease = await self._store.renew_lease(
                    lease_id=self.lease.lease_id,
                    ttl_ms=self._ttl_ms,
                    tenant_id=self.lease.identity.tenant_id,
                )
            except WeightctlError as error:
                self._failure = error
                return

    async def release(self) -> None:
        """Give the lease back; an unknown or expired one is fine.

        A release that hangs ends the wait, not the lease's life: it then dies by its own expiry.
        """
        with anyio.move_on_after(FINISH_S, shield=True):
            await self._store.release_lease(
                lease_id=self.lease.lease_id, tenant_id=self.lease.identity.tenant_id
            )


@asynccontextmanager
async def held_lease(
    store: WeightMetadataStore,
    clock: Clock,
    record: RevisionMetadata,
    *,
    holder: str,
    ttl_ms: int,
) -> AsyncIterator[LeaseKeeper]:
    """Hold a lease on exactly this generation of the record.

    Raises what acquiring raises (NOT_READY, BUSY, STALE_GENERATION, ...), then what the body
    raises, else what a renewal or the release failed with.
    """
    keepers: list[LeaseKeeper] = []

    async def acquire() -> None:
        lease = await store.acquire_lease(
            identity=record.identity,
            expected_metadata_generation=record.metadata_generation,
            holder=holder,
            ttl_ms=ttl_ms,
        )
        keepers.append(LeaseKeeper(store, clock, lease, ttl_ms))

    failure: Exception | None = None
    try:
        await finished(acquire)  # cut short, it may leave a lease that nobody knows to release
        keeper = keepers[0]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keeper.renew_until_cancelled)
            try:
                yield keeper
                keeper.check()
            except Exception as error:  # noqa: BLE001 - raised below, as itself and not in a group
                failure = error
            tasks.cancel_scope.cancel()
    finally:
        for held in keepers:
            try:
                await finished(held.release)
            except WeightctlError as error:
                failure = failure or error
    if failure is not None:
        raise failure
