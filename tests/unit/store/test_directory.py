"""The object directory: registered while IMPORTING, whole, and gone with the tombstone."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.stores import (
    begin,
    deleted,
    manifest,
    opened,
    payload,
    payload_key,
    published,
    refused,
    seen,
)
from tests.support.virtual_time import VirtualClock
from tests.support.weights import ID, LOGICAL_BYTES, identity
from tests.unit.acceptance_rows import row
from weightctl.controller.core.identity import (
    manifest_key,
    payload_group_id,
    payload_keys_digest,
)
from weightctl.controller.core.observation import Member
from weightctl.controller.core.records import (
    Availability,
    DataType,
    ManifestReference,
    Residency,
    RevisionMetadata,
)
from weightctl.controller.errors import ErrorCode, WeightError

GROUP = payload_group_id(ID)
PAYLOAD, MANIFEST = payload(ID), manifest(ID)


async def test_members_come_back_in_byte_order_with_everything(tmp_path: Path) -> None:
    keys = ["b", "a", "Z", "é", "\udcff", "a\U0001f680", "a￿"]
    members = [replace(PAYLOAD, key=key, size_bytes=n) for n, key in enumerate(keys)]
    async with opened(tmp_path) as store:
        await begin(store, ID)
        await store.directory.register(ID, [*members, MANIFEST])
        found = await store.directory.members(GROUP)
    expected = sorted([*members, MANIFEST], key=lambda m: m.key.encode("utf-8", "surrogateescape"))
    assert list(found.select(range(len(found)))) == expected
    assert found.hard_pin == bytes(member.key == MANIFEST.key for member in expected)
    async with opened(tmp_path) as store:
        assert await store.directory.members(GROUP) == found


async def test_unknown_group_has_no_members(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        assert len(await store.directory.members("weight:unknown")) == 0


async def test_registering_again_is_a_no_op_and_may_add(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await begin(store, ID)
        await store.directory.register(ID, [PAYLOAD])
        await store.directory.register(ID, [PAYLOAD])
        await store.directory.register(ID, [PAYLOAD, PAYLOAD, MANIFEST])
        assert len(await store.directory.members(GROUP)) == 2
        assert store.last_sequence == 1  # the directory is no part of the op-log


@pytest.mark.parametrize(
    "change",
    [{"size_bytes": 1}, {"sha256": b"x" * 32}, {"data_type": DataType.METADATA}],
    ids=["size", "digest", "type"],
)
async def test_other_content_under_a_registered_key_is_a_conflict(
    tmp_path: Path, change: dict[str, object]
) -> None:
    other: Member = replace(PAYLOAD, **change)  # type: ignore[arg-type]
    async with opened(tmp_path) as store:
        await begin(store, ID)
        await refused(ErrorCode.CONFLICT, lambda: store.directory.register(ID, [PAYLOAD, other]))
        await store.directory.register(ID, [PAYLOAD])
        before = await store.directory.members(GROUP)
        await refused(ErrorCode.CONFLICT, lambda: store.directory.register(ID, [MANIFEST, other]))
        assert await store.directory.members(GROUP) == before


async def test_key_of_another_group_is_a_conflict_and_of_another_tenant_is_not(
    tmp_path: Path,
) -> None:
    other, foreign = identity("other"), identity(tenant="tenant-b")
    async with opened(tmp_path) as store:
        for of in (ID, other, foreign):
            await begin(store, of)
        await store.directory.register(ID, [PAYLOAD])
        taken = replace(PAYLOAD, group_id=payload_group_id(other))
        await refused(ErrorCode.CONFLICT, lambda: store.directory.register(other, [taken]))
        await store.directory.register(
            foreign, [replace(PAYLOAD, group_id=payload_group_id(foreign))]
        )
        assert len(await store.directory.members(payload_group_id(foreign))) == 1


INVALID: dict[str, dict[str, object]] = {
    "empty-key": {"key": ""},
    "control-byte": {"key": "a\nb"},
    "long-key": {"key": "k" * 4097},
    "other-group": {"group_id": "weight:other"},
    "negative-size": {"size_bytes": -1},
    "huge-size": {"size_bytes": 2**63},
    "short-digest": {"sha256": b"x"},
}


@pytest.mark.parametrize("change", INVALID.values(), ids=INVALID.keys())
async def test_invalid_member_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    member: Member = replace(PAYLOAD, **change)  # type: ignore[arg-type]
    async with opened(tmp_path) as store:
        await begin(store, ID)
        await refused(
            ErrorCode.INVALID_ARGUMENT, lambda: store.directory.register(ID, [MANIFEST, member])
        )
        assert len(await store.directory.members(GROUP)) == 0


async def test_registering_needs_an_importing_revision(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await refused(ErrorCode.NOT_FOUND, lambda: store.directory.register(ID, [PAYLOAD]))
        await published(store, ID)
        await refused(ErrorCode.CONFLICT, lambda: store.directory.register(ID, [PAYLOAD]))
        await store.delete_revision(identity=ID, expected_metadata_generation=2)
        await refused(ErrorCode.CONFLICT, lambda: store.directory.register(ID, [PAYLOAD]))
        invalid = identity("")
        await refused(
            ErrorCode.INVALID_ARGUMENT, lambda: store.directory.register(invalid, [PAYLOAD])
        )


async def test_members_stay_while_deleting_and_leave_with_the_tombstone(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await begin(store, ID)
        await store.directory.register(ID, [PAYLOAD, MANIFEST])
        await store.abort_import(identity=ID, expected_metadata_generation=1)
        assert len(await store.directory.members(GROUP)) == 2
        await store.finish_delete(identity=ID, expected_metadata_generation=2)
        assert len(await store.directory.members(GROUP)) == 0
    async with opened(tmp_path) as store:
        assert len(await store.directory.members(GROUP)) == 0


async def test_refused_finish_leaves_the_members(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await begin(store, ID)
        await store.directory.register(ID, [PAYLOAD])
        await refused(
            ErrorCode.CONFLICT,
            lambda: store.finish_delete(identity=ID, expected_metadata_generation=1),
        )
        assert len(await store.directory.members(GROUP)) == 1


async def test_concurrent_registrations_of_one_revision_all_count(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await begin(store, ID)
        await asyncio.gather(
            *(store.directory.register(ID, [payload(ID, n), payload(ID, n + 1)]) for n in range(40))
        )
        found = await store.directory.members(GROUP)
        assert list(found.keys) == [payload_key(ID, n) for n in range(41)]


async def test_large_group_is_registered_and_read(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await begin(store, ID)
        await store.directory.register(ID, [payload(ID, n) for n in range(50_000)])
        assert len(await store.directory.members(GROUP)) == 50_000
        await store.abort_import(identity=ID, expected_metadata_generation=1)
        await store.finish_delete(identity=ID, expected_metadata_generation=2)
        assert len(await store.directory.members(GROUP)) == 0


async def test_failed_registration_frees_the_revision_and_the_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError

    async with opened(tmp_path) as store:
        await begin(store, ID)
        with monkeypatch.context() as patch:
            patch.setattr(store.directory._table, "added", broken)
            with pytest.raises(RuntimeError):
                await store.directory.register(ID, [PAYLOAD])
        await store.directory.register(ID, [PAYLOAD])


# --- signs of life of an import -------------------------------------------------------------------


async def test_begin_retry_and_member_refresh_the_sign_of_life_but_not_the_record(
    tmp_path: Path,
) -> None:
    clock = VirtualClock(wall_ms=1000)
    async with opened(tmp_path, clock) as store:
        clock.jump(50)
        first = await begin(store, ID)
        clock.jump(10)
        assert store.import_idle_s(identity=ID) == pytest.approx(10)
        assert await begin(store, ID) is first
        assert store.import_idle_s(identity=ID) == pytest.approx(0)
        clock.jump(20)
        await store.directory.register(ID, [PAYLOAD])
        assert store.import_idle_s(identity=ID) == pytest.approx(0)
        clock.jump(30)
        store.touch_import(identity=ID)
        clock.jump_wall(-3600)
        clock.jump(5)
        assert store.import_idle_s(identity=ID) == pytest.approx(5)
    clock.jump(1000)
    async with opened(tmp_path, clock) as store:
        clock.jump(7)
        assert store.import_idle_s(identity=ID) == pytest.approx(7)  # counts from the restart


async def test_an_import_is_never_seen_without_a_sign_of_life(tmp_path: Path) -> None:
    """A pass that is woken by its publication must not take it for abandoned."""
    clock = VirtualClock(wall_ms=1000)
    async with opened(tmp_path, clock) as store:
        clock.jump(1000)
        seen: list[float] = []
        store.subscribe(lambda identity: seen.append(store.import_idle_s(identity=identity)))
        await begin(store, ID)
        assert seen == [pytest.approx(0)]


# --- the guard's index ----------------------------------------------------------------------------


async def test_tombstone_keeps_its_group_managed(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await published(store, ID)
        await deleted(store, ID)
        with pytest.raises(WeightError):
            await begin(store, ID)
        assert store._engine.state.groups[GROUP] == ID


# --- commit validation against what was seen ------------------------------------------------------

KEY = manifest_key(ID)
TABLE = [
    row(64, "whole", [payload(ID, 0), payload(ID, 1), MANIFEST], [], None),
    row(65, "no-manifest", [payload(ID, 0), payload(ID, 1)], [], ErrorCode.CONFLICT),
    row(
        65,
        "payload-in-its-place",
        [payload(ID, 0), payload(ID, 1), payload(ID, 2, 0)],
        [],
        ErrorCode.NOT_FOUND,
    ),
    row(
        66,
        "manifest-stored-as-weight",
        [payload(ID, 0), payload(ID, 1), replace(MANIFEST, data_type=DataType.WEIGHT)],
        [],
        ErrorCode.CONFLICT,
    ),
    row(68, "payload-missing", [payload(ID, 0), MANIFEST], [], ErrorCode.CONFLICT),
    row(
        68,
        "payload-unreadable",
        [payload(ID, 0), payload(ID, 1), MANIFEST],
        [payload_key(ID, 1)],
        ErrorCode.NOT_READY,
    ),
    row(
        69,
        "orphan-payload",
        [payload(ID, 0), payload(ID, 1), payload(ID, 2), MANIFEST],
        [],
        ErrorCode.CONFLICT,
    ),
    row(70, "other-bytes", [payload(ID, 0), payload(ID, 1, 9), MANIFEST], [], ErrorCode.CONFLICT),
    row(70, "other-keys", [payload(ID, 0), payload(ID, 2), MANIFEST], [], ErrorCode.CONFLICT),
]


@pytest.mark.parametrize("members, unreadable, code", TABLE)
async def test_commit_sees_the_physical_group(
    tmp_path: Path, members: list[Member], unreadable: list[str], code: ErrorCode | None
) -> None:
    """A refused commit changes nothing; the whole group becomes READY/HOT at generation 2."""
    reference = ManifestReference(
        manifest_key=KEY,
        manifest_sha256="a" * 64,
        payload_group_id=GROUP,
        payload_keys_sha256=payload_keys_digest([payload_key(ID, 0), payload_key(ID, 1)]),
        payload_count=2,
        logical_bytes=2 * LOGICAL_BYTES,
    )
    async with opened(tmp_path) as store:
        begun = await store.begin_import(
            identity=ID, expected_payload_count=2, expected_logical_bytes=2 * LOGICAL_BYTES
        )
        await store.directory.register(ID, members)
        found = await store.directory.members(GROUP)

        async def commit() -> RevisionMetadata:
            return await store.commit_import(
                identity=ID,
                expected_metadata_generation=1,
                manifest=reference,
                group=seen(found, [list(found.keys).index(key) for key in unreadable]),
            )

        if code is None:
            record = await commit()
            assert (record.availability, record.residency) == (Availability.READY, Residency.HOT)
            assert record.metadata_generation == 2
            assert await commit() == record
        else:
            await refused(code, commit)
            assert (await store.get(identity=ID)).metadata == begun
