"""Validity of identities, references and records (contract 1.1, 2.4, 2.5), as tables."""

from dataclasses import fields

import pytest

from tests.support.weights import ID, draft, identity, ready, reference
from tests.unit.acceptance_rows import row
from weightctl.controller.core.identity import (
    U64_MAX,
    Identity,
    manifest_key,
    payload_group_id,
    payload_keys_digest,
)
from weightctl.controller.core.records import (
    Availability,
    ManifestReference,
    Operation,
    Residency,
    ResidencyOperation,
    RevisionMetadata,
)
from weightctl.controller.core.validity import (
    TRANSITIONS,
    can_advance,
    is_retry,
    is_transition,
    record_problem,
    reference_problem,
)

A, R = Availability, Residency


def named(**changes: object) -> Identity:
    arguments: dict[str, object] = {
        "namespace": "n",
        "resource_id": "r",
        "revision": "v",
        "weight_generation": 1,
    }
    return Identity(**{**arguments, **changes})  # type: ignore[arg-type]


def shaped(**changes: object) -> ManifestReference:
    arguments = {name.name: getattr(reference(), name.name) for name in fields(ManifestReference)}
    return ManifestReference(**{**arguments, **changes})


@pytest.mark.parametrize(
    "valid, of",
    [
        row(1, "valid-identity-is-accepted", True, ID),
        row(2, "empty-namespace", False, named(namespace="")),
        row(2, "empty-resource", False, named(resource_id="")),
        row(2, "empty-revision", False, named(revision="")),
        row(2, "generation-zero", False, named(weight_generation=0)),
        row(2, "reserved-tenant", False, named(tenant_id="_reserved")),
        pytest.param(False, named(tenant_id="_é"), id="reserved-tenant-beyond-ascii"),
        pytest.param(False, named(tenant_id=""), id="empty-tenant"),
        pytest.param(True, named(tenant_id="t" * 5000), id="tenant-of-any-length"),
        pytest.param(True, named(revision="\udcff"), id="any-byte-from-0x80"),
        pytest.param(False, named(revision="\udcc3\udca9"), id="one-text-for-one-byte-string"),
        pytest.param(False, named(revision="\ud800"), id="no-byte-string"),
        pytest.param(False, named(weight_generation=True), id="generation-is-a-true-integer"),
        pytest.param(False, named(weight_generation=2**64), id="generation-over-u64"),
    ],
)
def test_identity_is_valid(valid: bool, of: Identity) -> None:
    assert (of.problem() is None) is valid
    assert (payload_group_id(of) != "") is valid


@pytest.mark.parametrize(
    "changes",
    [
        row(3, "sha-of-63-characters", {"manifest_sha256": "a" * 63}),
        row(3, "sha-with-a-letter-beyond-f", {"manifest_sha256": "G" + "a" * 63}),
        row(3, "upper-case-keys-digest", {"payload_keys_sha256": "A" + "a" * 63}),
        pytest.param({"manifest_key": ""}, id="no-manifest-key"),
        pytest.param({"payload_group_id": ""}, id="no-group"),
        pytest.param({"payload_count": 0}, id="no-payloads"),
        pytest.param({"logical_bytes": 0}, id="no-bytes"),
        pytest.param({"logical_bytes": 2**64}, id="bytes-over-u64"),
        pytest.param({"payload_count": True}, id="count-is-a-true-integer"),
    ],
)
def test_reference_is_refused_with(changes: dict[str, object]) -> None:
    assert reference_problem(reference()) is None
    assert reference_problem(shaped(**changes)) is not None


UNKNOWN = 255


@pytest.mark.parametrize(
    "valid, record",
    [
        row(4, "generation-zero-invalid", False, ready(metadata_generation=0)),
        row(4, "generation-one-valid", True, ready(metadata_generation=1)),
        pytest.param(False, ready(metadata_generation=U64_MAX), id="generation-at-the-last"),
        pytest.param(True, ready(metadata_generation=U64_MAX - 1), id="generation-before-the-last"),
        row(6, "group-not-canonical", False, ready(manifest=shaped(payload_group_id="weight:x"))),
        row(7, "manifest-key-not-canonical", False, ready(manifest=shaped(manifest_key="k"))),
        row(8, "operation-without-id", False, ready(operation=Operation.EVICTING)),
        row(8, "operation-with-id", True, ready(operation=Operation.EVICTING, operation_id=10)),
        row(8, "id-without-operation", False, ready(operation_id=10)),
        row(9, "ready-absent", False, ready(residency=R.ABSENT)),
        row(9, "ready-unknown", False, ready(residency=R.UNKNOWN)),
        row(9, "ready-hot", True, ready(residency=R.HOT)),
        row(10, "degraded-unknown", False, ready(availability=A.DEGRADED, residency=R.UNKNOWN)),
        row(10, "degraded-absent", True, ready(availability=A.DEGRADED, residency=R.ABSENT)),
        row(11, "deleted-hot", False, ready(availability=A.DELETED)),
        row(11, "deleted-absent", True, ready(availability=A.DELETED, residency=R.ABSENT)),
        row(12, "unknown-availability", False, ready(availability=UNKNOWN)),
        row(12, "unknown-residency", False, ready(residency=UNKNOWN)),
        row(12, "unknown-operation", False, ready(operation=UNKNOWN, operation_id=1)),
        row(
            13,
            "importing-with-operation",
            False,
            draft(operation=Operation.EVICTING, operation_id=1),
        ),
        pytest.param(True, draft(), id="importing"),
        pytest.param(False, draft(residency=R.HOT), id="importing-has-no-residency"),
        pytest.param(True, draft(availability=A.DELETING), id="aborted-import"),
        pytest.param(True, ready(availability=A.DELETING), id="deleting-keeps-its-residency"),
        pytest.param(False, ready(updated_at_ms=1), id="updated-before-created"),
        pytest.param(False, ready(created_at_ms=-1), id="time-before-the-epoch"),
        pytest.param(False, ready(manifest=ManifestReference()), id="ready-without-reference"),
        pytest.param(False, ready(identity=identity(generation=8)), id="names-of-another-revision"),
        pytest.param(False, ready(identity=identity(generation=0)), id="identity-invalid"),
    ],
)
def test_record_is_valid(valid: bool, record: RevisionMetadata) -> None:
    assert (record_problem(record) is None) is valid


@pytest.mark.parametrize(
    "generation, possible",
    [
        row(5, "one", 1, True),
        row(5, "zero", 0, False),
        row(5, "the-last-but-one", U64_MAX - 1, False),
        pytest.param(U64_MAX - 2, True, id="before-the-last-but-one"),
        pytest.param(U64_MAX, False, id="the-last"),
    ],
)
def test_generation_can_advance(generation: int, possible: bool) -> None:
    assert can_advance(generation) is possible


@pytest.mark.parametrize(
    "current, expected, retry",
    [(5, 5, True), (5, 4, True), (5, 3, False), (5, 6, False), (1, U64_MAX, False)],
)
def test_a_retry_expects_the_present_or_the_previous_generation(
    current: int, expected: int, retry: bool
) -> None:
    assert is_retry(current, expected) is retry


@pytest.mark.parametrize(
    "before, after, legal",
    [
        row(14, "importing-ready", A.IMPORTING, A.READY, True),
        row(14, "importing-deleting", A.IMPORTING, A.DELETING, True),
        row(14, "ready-degraded", A.READY, A.DEGRADED, True),
        row(14, "ready-deleting", A.READY, A.DELETING, True),
        row(14, "degraded-ready", A.DEGRADED, A.READY, True),
        row(14, "degraded-deleting", A.DEGRADED, A.DELETING, True),
        row(14, "deleting-deleted", A.DELETING, A.DELETED, True),
        row(14, "importing-degraded", A.IMPORTING, A.DEGRADED, False),
        row(14, "ready-deleted", A.READY, A.DELETED, False),
        row(14, "deleted-ready", A.DELETED, A.READY, False),
        row(14, "ready-ready", A.READY, A.READY, False),
    ],
)
def test_availability_transition(before: Availability, after: Availability, legal: bool) -> None:
    assert is_transition(before, after) is legal


@pytest.mark.acceptance(14)
def test_no_other_transition_is_legal() -> None:
    assert len(TRANSITIONS) == 7


@pytest.mark.acceptance(16)
def test_payload_digest_and_group_ids_are_the_asserted_ones() -> None:
    assert payload_keys_digest(["p2", "p1"]) == (
        "ff2c110b8f18291ea676be2af036320944751c4b3e6a65b3c1153721c61c2b26"
    )
    assert payload_group_id(ID) == (
        "weight:5dbbea14aa75c98a5b3fbb576a9c612d64fc6bc8f490f24a7ff017fcfe321b7d"
    )
    assert payload_group_id(identity(tenant="tenant-a")) == (
        "weight:6a1caf83916338aaff5ff039745a3dbd1d24c02c2e4e75ffabaa83cc0dc7a885"
    )


@pytest.mark.acceptance(17)
def test_manifest_key_encodes_space_slash_and_percent() -> None:
    of = Identity(
        namespace="prod east",
        resource_id="family/model",
        revision="v1%candidate",
        weight_generation=7,
    )
    assert manifest_key(of) == "weights/prod%20east/family%2Fmodel/v1%25candidate/7/manifest"


@pytest.mark.acceptance(18)
@pytest.mark.parametrize("kind", [RevisionMetadata, ManifestReference, ResidencyOperation])
def test_records_know_no_tensor_and_no_endpoint(kind: type) -> None:
    assert not {"tensor", "tensors", "fragment", "fragments", "endpoint", "endpoints"} & {
        name.name for name in fields(kind)
    }
