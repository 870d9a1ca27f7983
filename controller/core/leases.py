"""Acquire, renew, release and expire of revision leases.  Layer: core (pure).

A lease is dead at `now == expires_at_ms`; taking one does not touch the revision's record.  While a
revision is repaired its present leases may still be renewed: repair only adds replicas, and a
reader must not lose its claim to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.controller.core.identity import (
    DEFAULT_TENANT,
    U64_MAX,
    Identity,
    is_u64,
    is_valid_component,
    is_valid_tenant,
)
from weightctl.controller.core.mutations import LeaseMutation
from weightctl.controller.core.records import (
    LEASE_TTL_MS_MAX,
    Availability,
    MutationKind,
    Operation,
    RevisionLease,
    RevisionMetadata,
)
from weightctl.controller.core.refusals import (
    busy_operation,
    conflict,
    exhausted,
    invalid,
    lease_expired,
    not_found,
    outdated,
    stale,
    unavailable,
)
from weightctl.controller.core.steps import check_call, existing
from weightctl.controller.core.validity import lease_problem
from weightctl.controller.errors import require

if TYPE_CHECKING:
    from weightctl.controller.core.state import WeightState

_NOBODY = Identity(namespace="", resource_id="", revision="", weight_generation=0)


def prepare_acquire(
    state: WeightState,
    *,
    identity: Identity,
    expected_metadata_generation: int,
    holder: str,
    ttl_ms: int,
    now_ms: int,
) -> LeaseMutation:
    """AcquireWeightRevisionLease; a new lease consumes an id."""
    check_call("lease on", identity, expected_metadata_generation)
    if not is_valid_component(holder):
        raise invalid(
            f"lease on {identity}", "holder must be 1 to 1024 bytes without control bytes"
        )
    _check_ttl("lease on", identity, ttl_ms)
    record = existing(state, identity)
    if record.metadata_generation != expected_metadata_generation:
        raise stale(record, expected_metadata_generation)
    if record.availability != Availability.READY:
        raise unavailable(record)
    if record.operation != Operation.NONE:
        raise busy_operation(record)
    own = [lease for lease in state.active_leases(identity, now_ms) if lease.holder == holder]
    if own:
        last = max(own, key=lambda lease: lease.expires_at_ms)
        return LeaseMutation(lease_id=last.lease_id, previous=last, next=last, no_op=True)
    if not 0 < state.next_lease_id < U64_MAX:
        raise exhausted(f"lease on {identity}", "every lease id has been given out")
    lease = RevisionLease(
        lease_id=state.take_lease_id(),
        identity=identity,
        holder=holder,
        expires_at_ms=_expiry(now_ms, ttl_ms),
        fenced_metadata_generation=expected_metadata_generation,
    )
    return LeaseMutation(lease_id=lease.lease_id, previous=None, next=lease)


def prepare_renew(
    state: WeightState,
    *,
    lease_id: int,
    ttl_ms: int,
    tenant_id: str = DEFAULT_TENANT,
    now_ms: int,
) -> LeaseMutation:
    """Renew; never shortens, because replay refuses a shrinking lease."""
    _check_lease_call("renewal", lease_id, tenant_id)
    _check_ttl("renewal of lease", lease_id, ttl_ms)
    lease = state.leases.get(lease_id)
    if lease is None or lease.identity.tenant_id != tenant_id:
        raise not_found(f"lease {lease_id} of tenant {tenant_id!r}")
    if lease.expires_at_ms <= now_ms:
        raise lease_expired(lease, now_ms)
    renewed = RevisionLease(
        lease_id=lease_id,
        identity=lease.identity,
        holder=lease.holder,
        expires_at_ms=max(lease.expires_at_ms, _expiry(now_ms, ttl_ms)),
        fenced_metadata_generation=lease.fenced_metadata_generation,
    )
    return LeaseMutation(lease_id=lease_id, previous=lease, next=renewed)


def prepare_release(
    state: WeightState, *, lease_id: int, tenant_id: str = DEFAULT_TENANT
) -> LeaseMutation:
    """Release; an unknown id is a no-op, an expired lease is erased too."""
    _check_lease_call("release", lease_id, tenant_id)
    lease = state.leases.get(lease_id)
    if lease is None:
        return LeaseMutation(
            lease_id=lease_id, previous=None, next=None, kind=MutationKind.ERASE, no_op=True
        )
    if lease.identity.tenant_id != tenant_id:
        raise not_found(f"lease {lease_id} of tenant {tenant_id!r}")
    return _erasure(lease)


def prepare_expire(
    state: WeightState, *, identity: Identity | None = None, now_ms: int
) -> tuple[LeaseMutation, ...]:
    """Erasure of every lease dead at `now_ms`, of one revision or of all, ascending id (3.7)."""
    problem = None if identity is None else identity.problem()
    if problem is not None:
        raise invalid(f"expiry of leases on {identity}", problem)
    leases = state.leases.values() if identity is None else state.leases_of(identity)
    dead = [lease for lease in leases if lease.expires_at_ms <= now_ms]
    return tuple(_erasure(lease) for lease in sorted(dead, key=lambda lease: lease.lease_id))


# --- publish --------------------------------------------------------------------------------------


def check_lease(state: WeightState, mutation: LeaseMutation) -> None:
    """Every check of Publish, without applying anything."""
    if mutation.no_op:
        return
    what = f"lease {mutation.lease_id}"
    current = state.leases.get(mutation.lease_id)
    if mutation.previous is None:
        if current is not None:
            raise conflict(what, "its id is already taken")
    elif current != mutation.previous:
        raise outdated(what)
    if mutation.kind == MutationKind.ERASE:
        return
    lease = mutation.next
    if lease is None:
        raise invalid(what, "the mutation has no next lease", "none; a caller built it wrong")
    record = state.metadata.get(lease.identity)
    if record is None:
        raise not_found(f"revision {lease.identity} of lease {lease.lease_id}")
    _check_revision(record, lease, new=mutation.previous is None)
    if mutation.previous is None and lease.lease_id >= U64_MAX:
        raise exhausted(what, "the last id is never given out")
    problem = lease_problem(lease, record)
    if problem is not None:
        raise invalid(what, problem, "none; a caller built an invalid lease")


def publish_lease(state: WeightState, mutation: LeaseMutation) -> RevisionLease:
    """Check and apply a lease mutation; gives the lease that holds now, or the one erased.

    A no-op gives its lease as prepared, without a look at the state, or an otherwise empty lease.
    """
    check_lease(state, mutation)
    return apply_lease(state, mutation)


def apply_lease(state: WeightState, mutation: LeaseMutation) -> RevisionLease:
    """The second half of Publish, for a caller who has checked and kept the revision since."""
    if mutation.no_op:
        return mutation.next or RevisionLease(
            lease_id=mutation.lease_id,
            identity=_NOBODY,
            holder="",
            expires_at_ms=0,
            fenced_metadata_generation=0,
        )
    if mutation.next is None:
        erased = state.leases.get(mutation.lease_id)
        if erased is None:
            raise not_found(f"lease {mutation.lease_id}")
        state.erase_lease(mutation.lease_id)
        return erased
    require(mutation.next.lease_id == mutation.lease_id, mutation.lease_id, "another lease's id")
    state.put_lease(mutation.next)
    return mutation.next


def _check_revision(record: RevisionMetadata, lease: RevisionLease, *, new: bool) -> None:
    """A new lease is fenced by the present generation, as replay demands."""
    fence, generation = lease.fenced_metadata_generation, record.metadata_generation
    if generation < fence or (new and generation != fence):
        raise stale(record, fence)
    if record.availability != Availability.READY:
        raise unavailable(record)
    if record.operation != Operation.NONE and (new or record.operation != Operation.REPAIRING):
        raise busy_operation(record)


# --- shared ---------------------------------------------------------------------------------------


def _check_ttl(what: str, key: object, ttl_ms: int) -> None:
    if not is_u64(ttl_ms) or not 1 <= ttl_ms <= LEASE_TTL_MS_MAX:
        raise invalid(f"{what} {key}", f"ttl_ms must be an integer from 1 to {LEASE_TTL_MS_MAX}")


def _check_lease_call(what: str, lease_id: int, tenant_id: str) -> None:
    if not is_valid_tenant(tenant_id):
        raise invalid(f"{what} of lease {lease_id}", "tenant_id is not valid")
    if not is_u64(lease_id) or lease_id == 0:
        raise invalid(f"{what} of lease {lease_id}", "lease_id must be an integer from 1 to 2^64-1")


def _expiry(now_ms: int, ttl_ms: int) -> int:
    return min(now_ms + ttl_ms, U64_MAX)


def _erasure(lease: RevisionLease) -> LeaseMutation:
    return LeaseMutation(
        lease_id=lease.lease_id, previous=lease, next=None, kind=MutationKind.ERASE
    )
