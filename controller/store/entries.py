"""A payload as a journal entry, and where folding keeps it.  Layer: store, no I/O.

Folding keeps for each record the entry that wrote it last, in a slot: a revision or a lease under
the entry's own key, an operation under its id, because its revision's later entries no longer carry
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.controller.core.identity import text_bytes
from weightctl.controller.core.oplog import TYPE_OF, MetadataUpsert, identity_of, key_of
from weightctl.controller.errors import ErrorCode, WeightError
from weightctl.controller.store.codec import PAYLOAD_BYTES_MAX, encode
from weightctl.controller.store.commit import EntryDraft

if TYPE_CHECKING:
    from weightctl.controller.core.oplog import Payload
    from weightctl.controller.core.records import ResidencyOperation


def entry_of(payload: Payload) -> EntryDraft:
    """The payload as an entry without its place.  Raises DURABILITY_FAILED when it is too large."""
    raw = encode(payload)
    identity = identity_of(payload)
    if len(raw) > PAYLOAD_BYTES_MAX:
        raise WeightError(
            ErrorCode.DURABILITY_FAILED,
            f"a change of revision {identity.namespace}/{identity.resource_id} was not written",
            f"EntryTooLarge: a log entry holds at most {PAYLOAD_BYTES_MAX} bytes",
            "use a shorter tenant_id",
        )
    return EntryDraft(
        entry_type=TYPE_OF[type(payload)],
        tenant=text_bytes(identity.tenant_id),
        key=_key(payload),
        payload=raw,
        operation_id=operation_of(payload),
    )


def _key(payload: Payload) -> str:
    """As `key_of`; a valid record carries its digest already, in its group id."""
    if isinstance(payload, MetadataUpsert):
        return f"weight-revision:{payload.metadata.manifest.payload_group_id[7:]}"
    return key_of(payload)


def operation_of(payload: Payload) -> str | None:
    """Id of the operation record that an entry carries, as the log's column holds it."""
    if isinstance(payload, MetadataUpsert) and payload.operation is not None:
        return str(payload.operation.operation_id)
    return None


def slot_of(operation: ResidencyOperation) -> str:
    """The snapshot's slot of an operation; `fold_operations` derives the same one."""
    return f"weight-operation:{operation.operation_id}"
