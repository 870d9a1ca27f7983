"""Reads of the weight state: get, list and query.  Layer: core (pure).

Every state is shown, drafts and tombstones included.  `now_ms` is wall clock, for counting live
leases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.controller.core.identity import (
    DEFAULT_TENANT,
    is_u64,
    is_valid_component,
    is_valid_tenant,
    parse_page_token,
    text_bytes,
)
from weightctl.controller.core.identity import (
    page_token as token_after,
)
from weightctl.controller.core.records import LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX, RevisionPage
from weightctl.controller.core.refusals import invalid, not_found
from weightctl.controller.core.steps import existing

if TYPE_CHECKING:
    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.records import ResidencyOperation, RevisionView
    from weightctl.controller.core.state import WeightState


def get_revision(state: WeightState, *, identity: Identity, now_ms: int) -> RevisionView:
    """One revision with its live leases.  Raises INVALID_ARGUMENT, NOT_FOUND."""
    problem = identity.problem()
    if problem is not None:
        raise invalid(f"revision {identity}", problem)
    return state.view(existing(state, identity), now_ms)


def list_revisions(
    state: WeightState,
    *,
    namespace: str,
    resource_id: str,
    tenant_id: str = DEFAULT_TENANT,
    page_token: str = "",
    limit: int = LIST_LIMIT_DEFAULT,
    now_ms: int,
) -> RevisionPage:
    """Revisions of exactly one resource, ordered by revision bytes, then generation.

    A page token stands after its row and need not name an existing one.  Raises INVALID_ARGUMENT.
    """
    what = f"list of {namespace!r}/{resource_id!r}"
    _check_list(what, tenant_id, namespace, resource_id, limit)
    after = _row_after(what, page_token)
    rows = state.rows_after((tenant_id, namespace, resource_id), after, limit + 1)
    shown = rows[:limit]
    return RevisionPage(
        revisions=tuple(state.view(state.metadata[identity], now_ms) for identity in shown),
        next_page_token=token_after(shown[-1]) if len(rows) > limit else "",
    )


def query_operation(
    state: WeightState, *, operation_id: int, tenant_id: str = DEFAULT_TENANT
) -> ResidencyOperation:
    """One operation, finished or not.  Raises INVALID_ARGUMENT; NOT_FOUND for another tenant's."""
    what = f"operation {operation_id}"
    if not is_valid_tenant(tenant_id):
        raise invalid(what, "tenant_id is not valid")
    if not is_u64(operation_id) or operation_id == 0:
        raise invalid(what, "operation_id must be an integer from 1 to 2^64-1")
    operation = state.operations.get(operation_id)
    if operation is None or operation.identity.tenant_id != tenant_id:
        raise not_found(f"{what} of tenant {tenant_id!r}")
    return operation


def _check_list(what: str, tenant_id: str, namespace: str, resource_id: str, limit: int) -> None:
    if not is_valid_tenant(tenant_id):
        raise invalid(what, "tenant_id is not valid")
    if not is_valid_component(namespace):
        raise invalid(what, "namespace must be 1 to 1024 bytes without control bytes")
    if not is_valid_component(resource_id):
        raise invalid(what, "resource_id must be 1 to 1024 bytes without control bytes")
    if not is_u64(limit) or not 1 <= limit <= LIST_LIMIT_MAX:
        raise invalid(what, f"limit must be an integer from 1 to {LIST_LIMIT_MAX}")


def _row_after(what: str, token: str) -> tuple[bytes, int] | None:
    if not token:
        return None
    row = parse_page_token(token)
    if row is None:
        raise invalid(what, "page_token is malformed", "pass the next_page_token of the last page")
    revision, generation = row
    return text_bytes(revision), generation
