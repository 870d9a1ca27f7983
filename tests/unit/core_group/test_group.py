"""Commit validation against the physical group, in the contract's order (section 5)."""

from array import array
from dataclasses import replace

import pytest

from tests.support.weights import ID, World, code_of, identity, refuses
from weightctl.controller.core.group import GroupSnapshot, validate_group
from weightctl.controller.core.identity import (
    U64_MAX,
    manifest_key,
    payload_group_id,
    payload_keys_digest,
    text_bytes,
)
from weightctl.controller.core.lifecycle import prepare_commit
from weightctl.controller.core.observation import Members
from weightctl.controller.core.records import DataType, ManifestReference
from weightctl.controller.errors import ErrorCode, InvariantViolationError

KEY = manifest_key(ID)
GROUP = payload_group_id(ID)
WEIGHT, METADATA, OTHER = DataType.WEIGHT, DataType.METADATA, DataType.OTHER
CONFLICT, NOT_FOUND, NOT_READY = ErrorCode.CONFLICT, ErrorCode.NOT_FOUND, ErrorCode.NOT_READY
Item = tuple[str, DataType, int, int]
"""Key, type, size and whether it is readable."""

P1: Item = ("p1", WEIGHT, 1000, 1)
P2: Item = ("p2", WEIGHT, 24, 1)
MANIFEST: Item = (KEY, METADATA, 77, 1)
REFERENCE = ManifestReference(
    manifest_key=KEY,
    manifest_sha256="a" * 64,
    payload_group_id=GROUP,
    payload_keys_sha256=payload_keys_digest(["p1", "p2"]),
    payload_count=2,
    logical_bytes=1024,
)


def group(*items: Item, group_id: str = GROUP) -> GroupSnapshot:
    rows = sorted(items, key=lambda item: text_bytes(item[0]))
    members = Members(
        group_id=group_id,
        keys=[key for key, _, _, _ in rows],
        sizes_bytes=array("Q", [size for _, _, size, _ in rows]),
        sha256=bytes(32 * len(rows)),
        data_types=bytes(kind for _, kind, _, _ in rows),
    )
    return GroupSnapshot(members=members, readable=bytes(seen for _, _, _, seen in rows))


WHOLE = group(P1, P2, MANIFEST)
CASES: dict[str, tuple[GroupSnapshot, ManifestReference, ErrorCode | None]] = {
    "whole": (WHOLE, REFERENCE, None),
    "manifest-key-not-derived": (WHOLE, replace(REFERENCE, manifest_key="k"), CONFLICT),
    "no-member": (group(), REFERENCE, NOT_FOUND),
    "members-of-another-group": (group(P1, P2, MANIFEST, group_id="g"), REFERENCE, CONFLICT),
    "payload-missing": (group(P1, MANIFEST), REFERENCE, CONFLICT),
    "manifest-missing": (group(P1, P2), REFERENCE, CONFLICT),
    "orphan-payload": (group(P1, P2, MANIFEST, ("p3", WEIGHT, 1, 1)), REFERENCE, CONFLICT),
    "manifest-replaced-by-a-payload": (
        group(P1, P2, ("p3", WEIGHT, 1, 1)),
        REFERENCE,
        NOT_FOUND,
    ),
    "payload-in-flight": (group(P1, ("p2", WEIGHT, 24, 0), MANIFEST), REFERENCE, NOT_READY),
    "manifest-in-flight": (group(P1, P2, (KEY, METADATA, 77, 0)), REFERENCE, NOT_READY),
    "manifest-stored-as-weight": (group(P1, P2, (KEY, WEIGHT, 77, 1)), REFERENCE, CONFLICT),
    "payload-stored-as-metadata": (
        group(P1, ("p2", METADATA, 24, 1), MANIFEST),
        REFERENCE,
        CONFLICT,
    ),
    "foreign-type": (group(P1, ("p2", OTHER, 24, 1), MANIFEST), REFERENCE, CONFLICT),
    "manifest-twice": (group(P1, MANIFEST, MANIFEST), REFERENCE, CONFLICT),
    "sizes-overflow": (
        group(("p1", WEIGHT, U64_MAX, 1), ("p2", WEIGHT, 1, 1), MANIFEST),
        REFERENCE,
        CONFLICT,
    ),
    "other-bytes": (WHOLE, replace(REFERENCE, logical_bytes=2048), CONFLICT),
    "other-digest": (WHOLE, replace(REFERENCE, payload_keys_sha256="b" * 64), CONFLICT),
    "first-in-key-order-decides-type": (
        group(("p1", METADATA, 1, 1), ("p2", WEIGHT, 24, 0), MANIFEST),
        REFERENCE,
        CONFLICT,
    ),
    "first-in-key-order-decides-readable": (
        group(("p1", WEIGHT, 1000, 0), ("p2", METADATA, 24, 1), MANIFEST),
        REFERENCE,
        NOT_READY,
    ),
    "readable-comes-before-the-type": (
        group(("p1", METADATA, 1, 0), P2, MANIFEST),
        REFERENCE,
        NOT_READY,
    ),
}


@pytest.mark.parametrize("seen, reference, code", CASES.values(), ids=CASES.keys())
def test_a_group_is_judged(
    seen: GroupSnapshot, reference: ManifestReference, code: ErrorCode | None
) -> None:
    assert code_of(lambda: validate_group(ID, reference, seen)) is code


def commit(world: World, generation: int, seen: GroupSnapshot) -> object:
    return prepare_commit(
        world.state,
        identity=ID,
        expected_metadata_generation=generation,
        manifest=REFERENCE,
        group=seen,
        now_ms=200,
    )


def test_the_group_is_looked_at_last_and_not_at_all_by_a_retry() -> None:
    world = World()
    world.begin(expected_payload_count=2)
    refuses(ErrorCode.STALE_GENERATION, lambda: commit(world, 2, group()))
    refuses(NOT_FOUND, lambda: commit(world, 1, group()))
    world.publish(commit(world, 1, WHOLE))  # type: ignore[arg-type]
    commit(world, 1, group())


def test_readable_bytes_must_match_the_members() -> None:
    with pytest.raises(InvariantViolationError):
        GroupSnapshot(members=WHOLE.members, readable=b"\1")


def test_the_key_of_another_revision_is_no_manifest() -> None:
    refuses(CONFLICT, lambda: validate_group(identity("other"), REFERENCE, WHOLE))
