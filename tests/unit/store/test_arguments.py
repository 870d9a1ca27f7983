"""An argument of a wrong type is INVALID_ARGUMENT, for every argument of every method."""

import inspect
from collections.abc import Awaitable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.stores import begin, opened, payload, published, refused
from tests.support.weights import ID, reference
from weightctl.controller.core.identity import Identity
from weightctl.controller.core.observation import Member
from weightctl.controller.core.records import (
    Availability,
    ManifestReference,
    Operation,
    Residency,
    ResidencyOperation,
    RevisionLease,
    Snapshot,
)
from weightctl.controller.errors import ErrorCode
from weightctl.controller.store.objects import PlainObject
from weightctl.controller.store.store import WeightMetadataStore

NUMBERS: dict[str, Any] = dict.fromkeys(
    (
        "expected_payload_count",
        "expected_logical_bytes",
        "expected_metadata_generation",
        "lease_id",
        "ttl_ms",
        "operation_id",
        "processed_members",
        "total_members",
        "member_count",
        "limit",
    ),
    1,
)
GOOD: dict[str, Any] = NUMBERS | {
    "identity": ID,
    "payload_group_id": "",
    "manifest": reference(),
    "namespace": ID.namespace,
    "resource_id": ID.resource_id,
    "tenant_id": ID.tenant_id,
    "page_token": "",
    "holder": "loader",
    "target_residency": Residency.COLD,
    "observed_residency": Residency.COLD,
    "residency": Residency.COLD,
    "availability": Availability.DEGRADED,
    "copies_short": False,
    "cursor": "",
    "snapshot": Snapshot(),
    "path": "file",
    "callback": print,
}
FOREIGN: tuple[Any, ...] = (None, 7, 2.0, True, "text", b"bytes", [], {}, object())
READS_WITHOUT_ARGUMENTS = {"records", "export_snapshot", "live_leases"}


def methods() -> Iterator[tuple[str, inspect.Signature]]:
    """Every public method of the store but how it is opened."""
    for name, value in inspect.getmembers(WeightMetadataStore, inspect.isfunction):
        if not name.startswith("_"):
            yield name, inspect.signature(value)


def is_wrong(annotation: str, value: object) -> bool:
    wanted = annotation.split(" | ")
    given = "None" if value is None else type(value).__name__
    return given not in wanted


def cases() -> Iterator[Any]:
    for method, signature in methods():
        for name, parameter in list(signature.parameters.items())[1:]:
            for value in FOREIGN:
                if is_wrong(str(parameter.annotation), value):
                    yield pytest.param(method, name, value, id=f"{method}-{name}-{value!r:.8}")


async def call(store: WeightMetadataStore, method: str, **changes: Any) -> Any:
    """Call a method with good arguments but for the changed ones."""
    bound = getattr(store, method)
    wanted = inspect.signature(bound).parameters
    given = {name: GOOD[name] for name in wanted if name in GOOD} | changes
    positional = [
        given.pop(name) for name, each in wanted.items() if each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    result = bound(*positional, **given)
    return await result if isinstance(result, Awaitable) else result


def test_every_method_is_in_the_table() -> None:
    asked = {case.values[0] for case in cases()}
    assert {name for name, _ in methods()} - asked == READS_WITHOUT_ARGUMENTS


async def test_an_argument_of_a_wrong_type_is_invalid_and_changes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await published(store, ID)
        for case in cases():
            method, name, value = case.values
            error = await refused(
                ErrorCode.INVALID_ARGUMENT,
                lambda: call(store, method, **{name: value}),  # noqa: B023
            )
            assert f"argument {name} of {method}" in error.what, case.id
        assert store.last_sequence == 2


def changed(record: Any, name: str, value: object) -> Any:
    return replace(record, **{name: value})


IDENTITIES: dict[str, list[Identity]] = {
    field.name: [
        replace(ID, **{field.name: value}) for value in FOREIGN if is_wrong(str(field.type), value)
    ]
    for field in fields(Identity)
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_problem_names_the_identity_field_of_a_wrong_type(name: str) -> None:
    for identity in IDENTITIES[name]:
        assert (identity.problem() or "").startswith(f"{name} must be"), repr(identity)
        assert name in str(identity)


async def test_an_identity_with_a_field_of_a_wrong_type_is_invalid(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for method, signature in methods():
            if "identity" in signature.parameters:
                for bad in (each for row in IDENTITIES.values() for each in row):
                    await refused(
                        ErrorCode.INVALID_ARGUMENT,
                        lambda: call(store, method, identity=bad),  # noqa: B023
                    )
        assert store.last_sequence == 0


async def test_a_manifest_reference_with_a_field_of_a_wrong_type_is_invalid(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as store:
        for field in fields(ManifestReference):
            for value in (each for each in FOREIGN if is_wrong(str(field.type), each)):
                bad = changed(reference(), field.name, value)
                await refused(
                    ErrorCode.INVALID_ARGUMENT,
                    lambda: call(store, "commit_import", manifest=bad),  # noqa: B023
                )


LEASE = RevisionLease(
    lease_id=1, identity=ID, holder="h", expires_at_ms=9_999, fenced_metadata_generation=1
)
DONE = ResidencyOperation(
    operation_id=1,
    identity=ID,
    operation=Operation.EVICTING,
    target_residency=Residency.COLD,
    fenced_metadata_generation=1,
)


def broken(record: Any) -> Iterator[Any]:
    for field in fields(record):
        for value in (None, 2.0, [], object()):
            yield changed(record, field.name, value)


async def test_a_snapshot_with_anything_of_a_wrong_type_is_refused_whole(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        record = await published(store, ID)
        good = await store.export_snapshot()
        bad = [replace(good, metadata=(each,)) for each in (*broken(record), *FOREIGN)]
        bad += [replace(good, leases=(each,), next_lease_id=9) for each in broken(LEASE)]
        bad += [replace(good, operations=(each,), next_operation_id=9) for each in broken(DONE)]
        bad += [changed(good, field.name, 2.0) for field in fields(Snapshot)]
        for snapshot in bad:
            await refused(
                ErrorCode.INVALID_ARGUMENT,
                lambda: store.restore_snapshot(snapshot),  # noqa: B023
            )
        assert await store.export_snapshot() == good


@pytest.mark.parametrize("name", [field.name for field in fields(Member)])
async def test_a_member_with_a_field_of_a_wrong_type_is_invalid(tmp_path: Path, name: str) -> None:
    async with opened(tmp_path) as store:
        await begin(store, ID)
        for value in (None, 2.0, [], object()):
            member = changed(payload(ID), name, value)
            await refused(
                ErrorCode.INVALID_ARGUMENT,
                lambda: store.directory.register(ID, [member]),  # noqa: B023
            )


@pytest.mark.parametrize("name", [field.name for field in fields(PlainObject)])
async def test_a_plain_object_with_a_field_of_a_wrong_type_is_invalid(
    tmp_path: Path, name: str
) -> None:
    good = PlainObject(key="k", size_bytes=1, sha256=bytes(32))
    tier: Any = None  # it is not reached
    async with opened(tmp_path) as store:
        for value in (None, 2.0, [], object()):
            await refused(
                ErrorCode.INVALID_ARGUMENT,
                lambda: store.objects.put(changed(good, name, value), tier, tier),  # noqa: B023
            )
