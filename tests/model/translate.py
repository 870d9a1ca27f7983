"""Between the model's plain rows and the product's records, both ways, for every driver."""

from typing import Any

from tests.model.decisions import Model, Name, Row
from weightctl.controller.core.identity import Identity, manifest_key, payload_group_id
from weightctl.controller.core.records import (
    Availability,
    ManifestReference,
    Operation,
    Residency,
    ResidencyOperation,
    RevisionLease,
    RevisionMetadata,
    RevisionView,
    Snapshot,
)


def _identity(**changes: Any) -> Identity:
    arguments = {"namespace": "n", "resource_id": "m", "revision": "v", "weight_generation": 2}
    return Identity(**{**arguments, **changes})


IDENTITIES = {
    "v2": _identity(),
    "v10": _identity(weight_generation=10),
    "accent": _identity(revision="é/%"),
    "tenant": _identity(tenant_id="tenant-t"),
    "v3": _identity(weight_generation=3),
    "v4": _identity(weight_generation=4),
    "invalid": _identity(namespace=""),
    "long": _identity(revision="é" * 300),
}


def _name(label: str, of: Identity) -> Name:
    return Name(
        label=label,
        tenant=of.tenant_id,
        listing=(
            of.tenant_id,
            of.namespace,
            of.resource_id,
            of.revision.encode(),
            of.weight_generation,
        ),
        valid=label != "invalid",
        fits=label != "long",
    )


NAMES = {label: _name(label, of) for label, of in IDENTITIES.items()}
_LABELS = {of: label for label, of in IDENTITIES.items()}


def identity_of(name: Name) -> Identity:
    return IDENTITIES[name.label]


def name_of(identity: Identity) -> Name:
    return NAMES[_LABELS[identity]]


def reference_of(ref: Row, name: Name) -> ManifestReference:
    """Give the reference that a request's or a record's plain one stands for."""
    of = identity_of(name)
    whole = len(ref["sha"]) == 1
    return ManifestReference(
        manifest_key=manifest_key(of) if ref["canonical"] else "",
        manifest_sha256=ref["sha"] * 64 if whole else ref["sha"],
        payload_group_id=payload_group_id(of),
        payload_keys_sha256="b" * 64 if whole else "",
        payload_count=ref["count"],
        logical_bytes=ref["bytes"],
    )


def plain_record(record: RevisionMetadata) -> Row:
    name, reference = name_of(record.identity), record.manifest
    assert reference.payload_group_id == payload_group_id(record.identity)
    return {
        "name": name,
        "ref": {
            "group": name.label,
            "count": reference.payload_count,
            "bytes": reference.logical_bytes,
            "sha": reference.manifest_sha256[:1],
            "canonical": reference.manifest_key == manifest_key(record.identity),
        },
        "av": record.availability.name,
        "res": record.residency.name,
        "op": record.operation.name,
        "op_id": record.operation_id,
        "gen": record.metadata_generation,
        "created": record.created_at_ms,
        "updated": record.updated_at_ms,
    }


def plain_view(view: RevisionView) -> Row:
    return {
        **plain_record(view.metadata),
        "live": view.active_lease_count,
        "nearest": view.nearest_lease_expiry_ms,
    }


def plain_lease(lease: RevisionLease) -> Row:
    return {
        "id": lease.lease_id,
        "name": name_of(lease.identity),
        "holder": lease.holder,
        "expires": lease.expires_at_ms,
        "fence": lease.fenced_metadata_generation,
    }


def plain_operation(operation: ResidencyOperation) -> Row:
    return {
        "id": operation.operation_id,
        "name": name_of(operation.identity),
        "kind": operation.operation.name,
        "target": operation.target_residency.name,
        "fence": operation.fenced_metadata_generation,
        "started": operation.started_at_ms,
        "updated": operation.updated_at_ms,
        "processed": operation.processed_members,
        "total": operation.total_members,
        "cursor": operation.cursor,
        "message": operation.message,
    }


def plain_state(snapshot: Snapshot) -> Model:
    """Give a snapshot as a model, for comparison or to start one from it."""
    return Model(
        revs={name_of(record.identity): plain_record(record) for record in snapshot.metadata},
        leases={lease.lease_id: plain_lease(lease) for lease in snapshot.leases},
        ops={item.operation_id: plain_operation(item) for item in snapshot.operations},
        next_lease=snapshot.next_lease_id,
        next_op=snapshot.next_operation_id,
    )


def start_snapshot(
    *, generation: int = 2, next_id: int = 1, now_ms: int = 0, **changes: Any
) -> Snapshot:
    """Give a state with one revision (READY/HOT unless changed), perhaps near an end of numbers.

    A changed `operation` runs, with target HOT, under the id `next_id`.
    """
    ref = {"count": 1, "bytes": 100, "sha": "a", "canonical": True}
    record = RevisionMetadata(
        identity=IDENTITIES["v2"],
        manifest=reference_of(ref, NAMES["v2"]),
        availability=changes.get("availability", Availability.READY),
        residency=changes.get("residency", Residency.HOT),
        operation=changes.get("operation", Operation.NONE),
        operation_id=next_id if "operation" in changes else 0,
        metadata_generation=generation,
        created_at_ms=now_ms,
        updated_at_ms=now_ms,
    )
    leases = [
        RevisionLease(
            lease_id=next_id,
            identity=record.identity,
            holder="one",
            expires_at_ms=expires_at_ms,
            fenced_metadata_generation=generation,
        )
        for expires_at_ms in changes.get("leases", ())
    ]
    operation = ResidencyOperation(
        operation_id=next_id,
        identity=record.identity,
        operation=record.operation,
        target_residency=Residency.HOT,
        fenced_metadata_generation=generation,
        started_at_ms=now_ms,
        updated_at_ms=now_ms,
        total_members=2,
    )
    running = record.operation is not Operation.NONE
    return Snapshot(
        metadata=(record,),
        leases=tuple(leases),
        operations=(operation,) if running else (),
        next_lease_id=next_id + len(leases),
        next_operation_id=next_id + running,
    )
