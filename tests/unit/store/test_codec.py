"""The op-log's bytes: exact, strict, and complete for every byte string and number."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.weights import ID, evicting, lease, ready, running
from tests.unit.acceptance_rows import row
from weightctl.controller.core.identity import U64_MAX, Identity
from weightctl.controller.core.oplog import (
    EntryType,
    LeaseDelete,
    LeaseUpsert,
    MetadataDelete,
    MetadataUpsert,
    Payload,
)
from weightctl.controller.core.records import (
    Availability,
    ManifestReference,
    Operation,
    Residency,
    ResidencyOperation,
    RevisionLease,
    RevisionMetadata,
)
from weightctl.controller.errors import ErrorCode, WeightError
from weightctl.controller.store.codec import PAYLOAD_BYTES_MAX, CodecError, decode, encode
from weightctl.controller.store.commit import EntryDraft, entry_checksum
from weightctl.controller.store.entries import entry_of
from weightctl.controller.store.loading import DamageError, read_row

TYPE = {
    MetadataUpsert: EntryType.METADATA_UPSERT,
    MetadataDelete: EntryType.METADATA_DELETE,
    LeaseUpsert: EntryType.LEASE_UPSERT,
    LeaseDelete: EntryType.LEASE_DELETE,
}

numbers = st.integers(0, U64_MAX)
texts = st.binary(max_size=40).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
identities = st.builds(
    Identity,
    tenant_id=texts,
    namespace=texts,
    resource_id=texts,
    revision=texts,
    weight_generation=numbers,
)
records = st.builds(
    RevisionMetadata,
    identity=identities,
    manifest=st.builds(
        ManifestReference,
        manifest_key=texts,
        manifest_sha256=texts,
        payload_group_id=texts,
        payload_keys_sha256=texts,
        payload_count=numbers,
        logical_bytes=numbers,
    ),
    availability=st.sampled_from(Availability),
    residency=st.sampled_from(Residency),
    operation=st.sampled_from(Operation),
    operation_id=numbers,
    metadata_generation=numbers,
    created_at_ms=numbers,
    updated_at_ms=numbers,
)
operations = st.builds(
    ResidencyOperation,
    operation_id=numbers,
    identity=identities,
    operation=st.sampled_from(Operation),
    target_residency=st.sampled_from(Residency),
    fenced_metadata_generation=numbers,
    started_at_ms=numbers,
    updated_at_ms=numbers,
    processed_members=numbers,
    total_members=numbers,
    cursor=texts,
    message=texts,
)
leases = st.builds(
    RevisionLease,
    lease_id=numbers,
    identity=identities,
    holder=texts,
    expires_at_ms=numbers,
    fenced_metadata_generation=numbers,
)
payloads = st.one_of(
    st.builds(MetadataUpsert, metadata=records, operation=st.none() | operations),
    st.builds(MetadataDelete, identity=identities, metadata_generation=numbers),
    st.builds(LeaseUpsert, lease=leases),
    st.builds(
        LeaseDelete, lease_id=numbers, identity=identities, fenced_metadata_generation=numbers
    ),
)


@given(payloads)
def test_every_payload_round_trips(payload: Payload) -> None:
    assert decode(TYPE[type(payload)], encode(payload)) == payload


@pytest.mark.parametrize(
    "record, operation",
    [
        row(
            15,
            "degraded-mixed-repairing",
            replace(
                evicting(),
                availability=Availability.DEGRADED,
                residency=Residency.MIXED,
                operation=Operation.REPAIRING,
            ),
            running(operation=Operation.REPAIRING),
        )
    ],
)
def test_record_with_its_operation_round_trips(
    record: RevisionMetadata, operation: ResidencyOperation
) -> None:
    payload = MetadataUpsert(metadata=record, operation=operation)
    assert decode(8, encode(payload)) == payload


def test_bytes_are_those_of_version_1() -> None:
    """A change here is a change of the format on disk and needs a new version."""
    assert encode(LeaseUpsert(lease=lease())) == (
        b'[1,[1,["default","production","llama-70b","step-100",7],"loader",400,2]]'
    )
    assert encode(LeaseDelete(lease_id=1, identity=ID, fenced_metadata_generation=2)) == (
        b'[1,1,["default","production","llama-70b","step-100",7],2]'
    )
    assert encode(MetadataDelete(identity=ID, metadata_generation=2)) == (
        b'[1,["default","production","llama-70b","step-100",7],2]'
    )
    digest = b"weight:5dbbea14aa75c98a5b3fbb576a9c612d64fc6bc8f490f24a7ff017fcfe321b7d"
    assert encode(MetadataUpsert(metadata=evicting(), operation=running())) == (
        b'[1,[["default","production","llama-70b","step-100",7],'
        b'["weights/production/llama-70b/step-100/7/manifest","' + b"a" * 64 + b'","' + digest
        + b'","' + b"b" * 64 + b'",1,1024],1,1,1,1,3,100,300],'
        b'[1,["default","production","llama-70b","step-100",7],1,2,3,300,300,0,2,"",""]]'
    )  # fmt: skip


GOOD = json.loads(encode(MetadataUpsert(metadata=ready())))


def changed(path: tuple[int, ...], value: object) -> bytes:
    document = json.loads(json.dumps(GOOD))
    place = document
    for index in path[:-1]:
        place = place[index]
    place[path[-1]] = value
    return json.dumps(document).encode()


UNDECODABLE = {
    "empty": b"",
    "no-json": b"[1,",
    "no-array": b"{}",
    "no-version": b"[]",
    "other-version": changed((0,), 2),
    "version-true": changed((0,), True),
    "too-short": b"[1]",
    "too-long": json.dumps([*GOOD, 0]).encode(),
    "record-too-short": changed((1,), GOOD[1][:-1]),
    "record-an-object": changed((1,), {}),
    "identity-a-text": changed((1, 0), "x"),
    "text-a-number": changed((1, 0, 0), 1),
    "number-a-text": changed((1, 6), "2"),
    "number-a-float": changed((1, 6), 2.0),
    "number-true": changed((1, 6), True),
    "number-negative": changed((1, 6), -1),
    "number-too-large": changed((1, 6), U64_MAX + 1),
    "not-a-number": changed((1, 6), float("nan")),
    "availability-255": changed((1, 2), 255),
    "residency-255": changed((1, 3), 255),
    "operation-255": changed((1, 4), 255),
    "operation-record-short": changed((2,), [1]),
    "not-ascii": '[1,"é"]'.encode(),
    "deep": b"[" * 100_000,
    "binary": bytes(range(256)),
}


@pytest.mark.acceptance(105)
@pytest.mark.parametrize("raw", UNDECODABLE.values(), ids=UNDECODABLE.keys())
def test_undecodable_payload_is_refused(raw: bytes) -> None:
    with pytest.raises(CodecError):
        decode(EntryType.METADATA_UPSERT, raw)


@pytest.mark.acceptance(106)
@pytest.mark.parametrize("entry_type", [0, 1, 7, 12, 200])
def test_unknown_type_is_refused(entry_type: int) -> None:
    with pytest.raises(CodecError):
        decode(entry_type, encode(MetadataUpsert(metadata=ready())))


GOOD = EntryDraft(8, ID.tenant_id.encode(), "key", encode(MetadataUpsert(metadata=ready())))


def stored(draft: EntryDraft, checksum_off_by: int = 0) -> tuple[object, ...]:
    """Give an entry as a row of the journal, under the checksum that its writer gave it."""
    checksum = entry_checksum(1, 100, draft) + checksum_off_by
    return (1, 100, draft.entry_type, draft.tenant, draft.key, draft.payload, checksum)


@pytest.mark.parametrize(
    "entry, why",
    [
        row(106, "bad-checksum", stored(GOOD, checksum_off_by=1), "its checksum"),
        row(106, "type-200", stored(GOOD._replace(entry_type=200)), "200"),
        row(106, "key-of-4097-bytes", stored(GOOD._replace(key="k" * 4097)), "longer"),
        row(106, "key-of-4098-bytes-in-1366-characters", stored(GOOD._replace(key="模" * 1366)),
            "longer"),
        row(106, "payload-past-10-MiB", stored(GOOD._replace(payload=b" " * (10 * 2**20 + 1))),
            "longer"),
    ],
)  # fmt: skip
def test_row_of_the_journal_is_refused_before_it_is_replayed(
    entry: tuple[object, ...], why: str
) -> None:
    with pytest.raises(DamageError) as caught:
        read_row(entry)
    assert (caught.value.sequence, why in caught.value.why) == (1, True), caught.value.why


def test_row_of_the_largest_size_is_read() -> None:
    assert read_row(stored(GOOD)).key == "key"
    assert read_row(stored(GOOD._replace(key="k" * 4096))).key == "k" * 4096
    with pytest.raises(DamageError) as caught:
        read_row(stored(GOOD._replace(payload=b" " * (10 * 2**20))))
    assert "longer" not in caught.value.why


@pytest.mark.acceptance(106)
def test_entry_that_replay_would_refuse_for_its_size_is_never_written() -> None:
    tenant = "t" * PAYLOAD_BYTES_MAX
    with pytest.raises(WeightError, match="EntryTooLarge") as caught:
        entry_of(MetadataUpsert(metadata=ready(identity=replace(ID, tenant_id=tenant))))
    assert caught.value.code is ErrorCode.DURABILITY_FAILED


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_refused(raw: bytes) -> None:
    for entry_type in EntryType:
        try:
            payload = decode(entry_type, raw)
        except CodecError:
            continue
        assert decode(entry_type, encode(payload)) == payload


def test_checksum_covers_every_part_of_an_entry() -> None:
    entry = EntryDraft(8, b"tenant", "key", b"payload")
    sums = {
        entry_checksum(1, 100, entry),
        entry_checksum(2, 100, entry),
        entry_checksum(1, 101, entry),
        entry_checksum(1, 100, entry._replace(entry_type=9)),
        entry_checksum(1, 100, entry._replace(tenant=b"tenan", key="tkey")),
        entry_checksum(1, 100, entry._replace(key="keyp", payload=b"ayload")),
        entry_checksum(1, 100, entry._replace(payload=b"payloae")),
    }
    assert len(sums) == 7
    assert entry_checksum(1, 100, entry) == 1959961122  # the format on disk
