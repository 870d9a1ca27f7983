"""A weight state under a hand-set clock, and short names for valid records."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from weightctl.controller.core.identity import Identity, manifest_key, payload_group_id
from weightctl.controller.core.leases import (
    prepare_acquire,
    prepare_expire,
    prepare_release,
    prepare_renew,
    publish_lease,
)
from weightctl.controller.core.lifecycle import (
    prepare_abort,
    prepare_begin,
    prepare_commit,
    prepare_delete,
    prepare_finish_delete,
    prepare_observation,
    publish_metadata,
)
from weightctl.controller.core.mutations import (
    LeaseMutation,
    MetadataMutation,
    Mutation,
    OperationMutation,
)
from weightctl.controller.core.operations import (
    prepare_finish,
    prepare_progress,
    publish_operation,
)
from weightctl.controller.core.oplog import Payload, emitted, identity_of, key_of
from weightctl.controller.core.records import (
    Availability,
    ManifestReference,
    Operation,
    Residency,
    ResidencyOperation,
    RevisionLease,
    RevisionMetadata,
)
from weightctl.controller.core.replay import Entry
from weightctl.controller.core.starts import prepare_repair, prepare_start
from weightctl.controller.core.state import WeightState
from weightctl.controller.errors import ErrorCode, WeightError

PAYLOADS = 1
MEMBERS = PAYLOADS + 1
LOGICAL_BYTES = 1024


def identity(revision: str = "step-100", generation: int = 7, tenant: str = "default") -> Identity:
    return Identity(
        tenant_id=tenant,
        namespace="production",
        resource_id="llama-70b",
        revision=revision,
        weight_generation=generation,
    )


ID = identity()


def reference(of: Identity = ID) -> ManifestReference:
    return ManifestReference(
        manifest_key=manifest_key(of),
        manifest_sha256="a" * 64,
        payload_group_id=payload_group_id(of),
        payload_keys_sha256="b" * 64,
        payload_count=PAYLOADS,
        logical_bytes=LOGICAL_BYTES,
    )


def ready(of: Identity = ID, **changes: object) -> RevisionMetadata:
    """Give a valid READY/HOT record, changed as asked (and then perhaps no longer valid)."""
    record = RevisionMetadata(
        identity=of,
        manifest=reference(of),
        availability=Availability.READY,
        residency=Residency.HOT,
        metadata_generation=2,
        created_at_ms=100,
        updated_at_ms=200,
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def draft(of: Identity = ID, **changes: object) -> RevisionMetadata:
    """Give a valid IMPORTING record, changed as asked."""
    record = RevisionMetadata(
        identity=of,
        manifest=ManifestReference(
            payload_group_id=payload_group_id(of),
            payload_count=PAYLOADS,
            logical_bytes=LOGICAL_BYTES,
        ),
        created_at_ms=100,
        updated_at_ms=100,
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def lease(number: int = 1, **changes: object) -> RevisionLease:
    """Give a valid lease on the READY record, changed as asked."""
    value = RevisionLease(
        lease_id=number,
        identity=ID,
        holder="loader",
        expires_at_ms=400,
        fenced_metadata_generation=2,
    )
    return replace(value, **changes)  # type: ignore[arg-type]


def running(number: int = 1, **changes: object) -> ResidencyOperation:
    """Give a valid EVICTING operation of a revision at generation 3, changed as asked."""
    value = ResidencyOperation(
        operation_id=number,
        identity=ID,
        operation=Operation.EVICTING,
        target_residency=Residency.COLD,
        fenced_metadata_generation=3,
        started_at_ms=300,
        updated_at_ms=300,
        total_members=MEMBERS,
    )
    return replace(value, **changes)  # type: ignore[arg-type]


def evicting(number: int = 1) -> RevisionMetadata:
    """Give the record that runs `running(number)`."""
    return ready(
        operation=Operation.EVICTING, operation_id=number, metadata_generation=3, updated_at_ms=300
    )


def code_of(call: Callable[[], object]) -> ErrorCode | None:
    """Give the code that a call is refused with, None when it is not."""
    try:
        call()
    except WeightError as error:
        if not (error.what and error.why and error.todo):
            pytest.fail(f"a refusal in fewer than three parts: {error}")
        return error.code
    return None


def refuses(code: ErrorCode, call: Callable[[], object]) -> None:
    """Check that a call is refused with a code, in three parts for people."""
    found = code_of(call)
    if found is not code:
        pytest.fail(f"expected {code.name}, got {found.name if found else 'no refusal'}")


def entries(*payloads: Payload, start: int = 1) -> list[Entry]:
    """Give op-log entries for payloads, from a sequence on."""
    return [
        Entry(
            sequence=sequence,
            tenant_id=identity_of(payload).tenant_id,
            key=key_of(payload),
            payload=payload,
        )
        for sequence, payload in enumerate(payloads, start)
    ]


@dataclass
class World:
    """A state, a clock, and what was written to the op-log; each call prepares and publishes."""

    state: WeightState = field(default_factory=WeightState)
    now: int = 100
    log: list[Payload] = field(default_factory=list)

    def publish(self, mutation: Mutation) -> None:
        match mutation:
            case MetadataMutation():
                publish_metadata(self.state, mutation)
            case LeaseMutation():
                publish_lease(self.state, mutation)
            case OperationMutation():
                publish_operation(self.state, mutation)
        self.log.extend(emitted(mutation))

    def at(self, now_ms: int) -> "World":
        self.now = now_ms
        return self

    def record(self, of: Identity = ID) -> RevisionMetadata:
        return self.state.metadata[of]

    def begin(self, of: Identity = ID, **changes: object) -> MetadataMutation:
        arguments: dict[str, object] = {
            "identity": of,
            "expected_payload_count": PAYLOADS,
            "expected_logical_bytes": LOGICAL_BYTES,
            "now_ms": self.now,
        }
        mutation = prepare_begin(self.state, **{**arguments, **changes})  # type: ignore[arg-type]
        return self._published(mutation)

    def commit(
        self, generation: int = 1, of: Identity = ID, manifest: ManifestReference | None = None
    ) -> MetadataMutation:
        return self._published(
            prepare_commit(
                self.state,
                identity=of,
                expected_metadata_generation=generation,
                manifest=reference(of) if manifest is None else manifest,
                group=None,
                now_ms=self.now,
            )
        )

    def abort(self, generation: int, of: Identity = ID) -> MetadataMutation:
        return self._published(
            prepare_abort(
                self.state,
                identity=of,
                expected_metadata_generation=generation,
                now_ms=self.now,
            )
        )

    def delete(self, generation: int, of: Identity = ID) -> MetadataMutation:
        return self._published(
            prepare_delete(
                self.state,
                identity=of,
                expected_metadata_generation=generation,
                now_ms=self.now,
            )
        )

    def finish_delete(self, generation: int, of: Identity = ID) -> MetadataMutation:
        return self._published(
            prepare_finish_delete(
                self.state,
                identity=of,
                expected_metadata_generation=generation,
                now_ms=self.now,
            )
        )

    def observe(
        self, generation: int, availability: Availability, residency: Residency
    ) -> MetadataMutation:
        return self._published(
            prepare_observation(
                self.state,
                identity=ID,
                expected_metadata_generation=generation,
                availability=availability,
                residency=residency,
                now_ms=self.now,
            )
        )

    def acquire(
        self, generation: int = 2, holder: str = "loader", ttl: int = 100, of: Identity = ID
    ) -> RevisionLease:
        return self._leased(
            prepare_acquire(
                self.state,
                identity=of,
                expected_metadata_generation=generation,
                holder=holder,
                ttl_ms=ttl,
                now_ms=self.now,
            )
        )

    def renew(self, number: int, ttl: int, tenant: str = "default") -> RevisionLease:
        return self._leased(
            prepare_renew(
                self.state, lease_id=number, ttl_ms=ttl, tenant_id=tenant, now_ms=self.now
            )
        )

    def release(self, number: int, tenant: str = "default") -> LeaseMutation:
        mutation = prepare_release(self.state, lease_id=number, tenant_id=tenant)
        self.publish(mutation)
        return mutation

    def expire(self, of: Identity | None = None) -> list[int]:
        mutations = prepare_expire(self.state, identity=of, now_ms=self.now)
        for mutation in mutations:
            self.publish(mutation)
        return [mutation.lease_id for mutation in mutations]

    def start(
        self, generation: int, target: Residency, members: int = MEMBERS
    ) -> ResidencyOperation:
        return self._operated(
            prepare_start(
                self.state,
                identity=ID,
                expected_metadata_generation=generation,
                target_residency=target,
                member_count=members,
                now_ms=self.now,
            )
        )

    def repair(
        self, generation: int, target: Residency = Residency.HOT, *, short: bool = False
    ) -> ResidencyOperation:
        return self._operated(
            prepare_repair(
                self.state,
                identity=ID,
                expected_metadata_generation=generation,
                target_residency=target,
                member_count=MEMBERS,
                copies_short=short,
                now_ms=self.now,
            )
        )

    def progress(
        self,
        processed: int,
        total: int = MEMBERS,
        cursor: str = "",
        seen: tuple[Availability, Residency] | None = None,
        number: int = 1,
    ) -> OperationMutation:
        record = self.record()
        availability, residency = seen or (record.availability, record.residency)
        mutation = prepare_progress(
            self.state,
            operation_id=number,
            processed_members=processed,
            total_members=total,
            cursor=cursor,
            availability=availability,
            residency=residency,
            now_ms=self.now,
        )
        self.publish(mutation)
        return mutation

    def finish(self, observed: Residency, number: int = 1) -> ResidencyOperation:
        return self._operated(
            prepare_finish(
                self.state, operation_id=number, observed_residency=observed, now_ms=self.now
            )
        )

    def _published(self, mutation: MetadataMutation) -> MetadataMutation:
        self.publish(mutation)
        return mutation

    def _leased(self, mutation: LeaseMutation) -> RevisionLease:
        self.publish(mutation)
        assert mutation.next is not None
        return mutation.next

    def _operated(self, mutation: OperationMutation) -> ResidencyOperation:
        self.publish(mutation)
        assert mutation.next is not None
        return mutation.next


def ready_world(now_ms: int = 200) -> World:
    """Give a world whose one revision is READY/HOT at generation 2."""
    world = World()
    world.begin()
    world.at(now_ms).commit()
    return world
