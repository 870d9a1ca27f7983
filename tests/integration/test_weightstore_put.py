"""Import: what becomes READY was seen complete, an interrupted one resumes, nothing else wins."""

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from tests.support.models import random_tensors, write_model
from tests.support.plain_tier import PlainTier
from tests.support.rig import IDENTITY, MANIFEST_KEY, Rig, contents, rig
from weightctl.controller.core.identity import Identity, payload_keys_digest, payload_prefix
from weightctl.controller.core.manifest_codec import read_manifest
from weightctl.controller.core.records import Availability, DataType, ManifestReference, Residency
from weightctl.controller.errors import (
    CapacityError,
    ConfigError,
    ErrorCode,
    FencedError,
    IntegrityError,
    SourceError,
    TerminalError,
    UnknownOutcomeError,
    WeightctlError,
    WeightError,
)
from weightctl.controller.ports import (
    Busy,
    Conflict,
    Fenced,
    NoCapacity,
    Outcome,
    Permanent,
    Retry,
    Unknown,
)
from weightctl.controller.weightstore import readers, upload
from weightctl.controller.weightstore.facade import WeightStore
from weightctl.controller.weightstore.options import Progress, WeightStoreOptions


async def refused(parts: Rig, code: ErrorCode, source: Path | None = None) -> None:
    with pytest.raises(WeightError) as caught:
        await parts.weights.put(IDENTITY, source or parts.source)
    assert caught.value.code is code


async def is_free(parts: Rig) -> None:
    """Nothing is recorded under the name."""
    with pytest.raises(WeightError, match="NOT_FOUND"):
        await parts.availability()


async def test_import_publishes_what_is_in_both_tiers(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        report = await parts.weights.put(IDENTITY, parts.source)
        assert report.record.availability is Availability.READY
        assert report.record.residency is Residency.HOT
        assert report.tiers == ("memory", "disk")
        assert parts.hot.content == parts.cold.content
        assert len(parts.hot.content) == report.payload_count + 1
        reference = report.record.manifest
        raw = parts.cold.content[MANIFEST_KEY]
        manifest = read_manifest(report.record, raw)
        assert [tensor.tensor_id for tensor in manifest.tensors] == list(parts.model)
        assert reference.payload_keys_sha256 == payload_keys_digest(parts.payload_keys())
        assert reference.logical_bytes == sum(
            len(parts.hot.content[key]) for key in parts.payload_keys()
        )
        members = await parts.store.directory.members(reference.payload_group_id)
        assert list(members.keys) == sorted(parts.hot.content)
        kinds = dict(zip(members.keys, members.data_types, strict=True))
        assert kinds.pop(MANIFEST_KEY) == DataType.METADATA
        assert set(kinds.values()) == {DataType.WEIGHT}
        pins = dict(zip(members.keys, members.hard_pin, strict=True))
        assert [key for key, pin in pins.items() if pin] == [MANIFEST_KEY]


async def test_manifest_is_written_last_in_every_tier(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        order: list[str] = []

        async def note(key: str) -> None:
            order.append(key)

        parts.hot.faults.before_store = parts.cold.faults.before_store = note
        await parts.weights.put(IDENTITY, parts.source)
        assert order[-2:] == [MANIFEST_KEY] * 2
        assert MANIFEST_KEY not in order[:-2]


async def test_primitives_carry_the_fence_of_this_opening(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        await parts.weights.put(IDENTITY, parts.source)
        fences = {(f.holder, f.term, f.operation_id, f.generation) for f in parts.hot.fences}
        assert fences == {(parts.store.holder, parts.store.term, 0, 1)}


async def test_progress_ends_at_the_total_of_each_stage(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        seen: list[Progress] = []
        report = await parts.weights.put(IDENTITY, parts.source, progress=seen.append)
        last = {(one.stage, one.tier): one for one in seen}
        assert set(last) == {
            ("hash", ""),
            ("store", "memory"),
            ("store", "disk"),
            ("verify", "disk"),
        }
        assert all(one.done_bytes == one.total_bytes for one in last.values())
        assert {one.total_bytes for one in seen} == {report.logical_bytes}


# --- interruption and retry -----------------------------------------------------------------------


class Interrupted(Exception):
    """What a test raises in the middle."""


@pytest.mark.parametrize("at", range(0, 9, 2))
async def test_interrupted_import_resumes_with_the_same_plan(tmp_path: Path, at: int) -> None:
    async with rig(tmp_path) as parts:
        left = at

        async def stop(key: str) -> None:
            nonlocal left
            if left == 0:
                raise Interrupted
            left -= 1

        parts.cold.faults.before_store = stop
        with pytest.raises(Interrupted):
            await parts.weights.put(IDENTITY, parts.source)
        assert await parts.availability() is Availability.IMPORTING
        before = dict(parts.cold.content)
        left = -1
        parts.clock.jump(100)
        report = await parts.weights.put(IDENTITY, parts.source)
        assert report.record.availability is Availability.READY
        assert before.items() <= parts.cold.content.items()
        loaded = await parts.weights.load(IDENTITY)
        assert contents(loaded.tensors) == parts.model


async def test_resumed_import_moves_only_what_is_missing(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        await parts.weights.put(IDENTITY, parts.source)
        held = dict(parts.hot.content)
    held.pop(MANIFEST_KEY)
    missing = sorted(held)[2:5]
    await to_thread.run_sync((tmp_path / "again").mkdir)
    async with rig(tmp_path / "again") as parts:
        parts.cold.content = dict(held)
        parts.hot.content = {key: held[key] for key in held if key not in missing}
        report = await parts.weights.put(IDENTITY, parts.source)
        manifest_bytes = len(parts.hot.content[MANIFEST_KEY])
        missing_bytes = sum(len(held[key]) for key in missing)
        assert report.moved_bytes == missing_bytes + 2 * manifest_bytes


async def test_put_of_a_ready_revision_with_the_same_content_is_a_no_op(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        first = await parts.weights.put(IDENTITY, parts.source)
        stores = len(parts.hot.fences)
        again = await parts.weights.put(IDENTITY, parts.source)
        assert again.record == first.record
        assert again.moved_bytes == 0
        assert again.tiers == ()
        assert len(parts.hot.fences) == stores


def other_bytes(folder: Path) -> Path:
    """Write a model of the same shapes with other values."""
    return write_model(folder / "other.safetensors", random_tensors(seed=8))


def other_sizes(folder: Path) -> Path:
    return write_model(folder / "larger.safetensors", random_tensors(rows=80))


@pytest.mark.parametrize("other", [other_bytes, other_sizes])
@pytest.mark.parametrize("published", [False, True])
async def test_other_source_under_the_same_identity_is_a_conflict(
    tmp_path: Path, other: Any, published: bool
) -> None:
    async with rig(tmp_path) as parts:
        if not published:
            parts.cold.faults.outcomes = [Permanent(detail="broken")]
            with pytest.raises(TerminalError):
                await parts.weights.put(IDENTITY, parts.source)
        else:
            await parts.weights.put(IDENTITY, parts.source)
        held = dict(parts.hot.content)
        source = await to_thread.run_sync(other, tmp_path)
        await refused(parts, ErrorCode.CONFLICT, source)
        assert parts.hot.content == held


async def test_foreign_object_under_a_payload_key_is_a_conflict_and_stays(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        key = f"{payload_prefix(IDENTITY)}00000001"
        parts.hot.content[key] = b"foreign"
        await refused(parts, ErrorCode.CONFLICT)
        assert parts.hot.content == {key: b"foreign"}
        assert not parts.cold.content
        await is_free(parts)
        del parts.hot.content[key]
        assert (await parts.weights.put(IDENTITY, parts.source)).record.metadata_generation == 2


async def test_object_of_the_very_size_is_read_before_anything_is_recorded(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        await parts.weights.put(IDENTITY, parts.source)
        right = dict(parts.hot.content)
    anew = tmp_path / "anew"
    await to_thread.run_sync(anew.mkdir)
    async with rig(anew) as parts:
        key = f"{payload_prefix(IDENTITY)}00000001"
        parts.hot.content[key] = bytes(len(right[key]))
        await refused(parts, ErrorCode.CONFLICT)
        await is_free(parts)
        parts.hot.content[key] = right[key]
        report = await parts.weights.put(IDENTITY, parts.source)
        both = report.logical_bytes + len(parts.hot.content[MANIFEST_KEY])
        assert report.moved_bytes == 2 * both - len(right[key])


async def test_manifest_of_an_earlier_revision_leaves_the_name_free(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        parts.cold.content[MANIFEST_KEY] = b"an old one"
        await refused(parts, ErrorCode.CONFLICT)
        await is_free(parts)


# --- outcomes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "outcomes",
    [
        [Retry(after_s=1.0, detail="EIO")],
        [Busy(until_ms=None)],
        [Unknown(detail="lost")],
        [Unknown(), Retry(), Busy(until_ms=1)],
    ],
)
async def test_passing_faults_are_tried_again(tmp_path: Path, outcomes: list[Outcome]) -> None:
    async with rig(tmp_path) as parts:
        parts.clock.sleep = _no_wait  # type: ignore[method-assign]
        parts.hot.faults.outcomes = list(outcomes)
        report = await parts.weights.put(IDENTITY, parts.source)
        assert report.record.availability is Availability.READY


async def _no_wait(seconds: float) -> None:
    assert 0 <= seconds <= 30


@pytest.mark.parametrize(
    "outcome, error",
    [
        (NoCapacity(needed_bytes=10, free_bytes=1), CapacityError),
        (NoCapacity(needed_bytes=0, free_bytes=0), CapacityError),
        (Conflict(detail="another instance"), WeightError),
        (Fenced(detail="term 9 was seen"), FencedError),
        (Permanent(detail="read-only"), TerminalError),
    ],
)
async def test_other_outcomes_end_the_import_with_a_reason(
    tmp_path: Path, outcome: Outcome, error: type[WeightctlError]
) -> None:
    async with rig(tmp_path) as parts:
        parts.cold.faults.outcomes = [outcome]
        with pytest.raises(error) as caught:
            await parts.weights.put(IDENTITY, parts.source)
        assert payload_prefix(IDENTITY) in caught.value.what
        assert caught.value.why == outcome.detail  # type: ignore[union-attr]
        assert "needs 0 bytes" not in caught.value.why
        assert caught.value.todo
        assert await parts.availability() is Availability.IMPORTING
        assert MANIFEST_KEY not in parts.hot.content


async def test_fault_that_does_not_pass_gives_up_after_bounded_tries(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        parts.clock.sleep = _no_wait  # type: ignore[method-assign]
        parts.cold.faults.outcomes = [Unknown(detail="no reply in 3 s") for _ in range(1000)]
        with pytest.raises(UnknownOutcomeError, match=r"5 attempts; .* Unknown: no reply in 3 s"):
            await parts.weights.put(IDENTITY, parts.source)
        assert await parts.availability() is Availability.IMPORTING


async def test_item_without_an_answer_is_not_done(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        parts.clock.sleep = _no_wait  # type: ignore[method-assign]
        whole, short = parts.cold.store, [True]

        async def half(batch: Any, fence: Any, **options: Any) -> Any:
            if short and short.pop():
                return await whole(batch[: len(batch) // 2], fence, **options)
            return await whole(batch, fence, **options)

        parts.cold.store = half  # type: ignore[method-assign]
        report = await parts.weights.put(IDENTITY, parts.source)
        assert report.record.availability is Availability.READY
        assert parts.cold.content == parts.hot.content


async def test_persistent_copy_that_reads_back_wrong_is_not_published(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        key = f"{payload_prefix(IDENTITY)}00000003"
        whole = parts.cold.store

        async def bad_medium(batch: Any, fence: Any, **options: Any) -> Any:
            outcomes = await whole(batch, fence, **options)
            if key in parts.cold.content:
                parts.cold.content[key] = b"\0" * len(parts.cold.content[key])
            return outcomes

        parts.cold.store = bad_medium  # type: ignore[method-assign]
        with pytest.raises(IntegrityError):
            await parts.weights.put(IDENTITY, parts.source)
        assert await parts.availability() is Availability.IMPORTING


async def test_import_whose_objects_are_not_seen_is_not_published(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:

        async def go_dark(key: str) -> None:
            parts.cold.faults.silent = True

        parts.cold.faults.before_store = go_dark
        with pytest.raises(UnknownOutcomeError, match="switched off"):
            await parts.weights.put(IDENTITY, parts.source)
        assert await parts.availability() is Availability.IMPORTING


# --- the source -----------------------------------------------------------------------------------


@pytest.mark.parametrize("small_bytes", [0, readers.SMALL_BYTES], ids=["streamed", "small"])
@pytest.mark.parametrize("keep_time", [False, True])
async def test_source_that_changes_while_it_is_read_publishes_nothing(
    tmp_path: Path, keep_time: bool, small_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "SMALL_BYTES", small_bytes)
    async with rig(tmp_path) as parts:

        def scribble() -> None:
            state = parts.source.stat()
            raw = bytearray(parts.source.read_bytes())
            raw[-1] ^= 1
            with parts.source.open("r+b") as file:
                file.write(raw)
            if keep_time:
                os.utime(parts.source, ns=(state.st_atime_ns, state.st_mtime_ns))

        async def change(key: str) -> None:
            await to_thread.run_sync(scribble)

        parts.hot.faults.before_store = change
        with pytest.raises(SourceError, match="changed while it was read"):
            await parts.weights.put(IDENTITY, parts.source)
        assert await parts.availability() is Availability.IMPORTING
        assert MANIFEST_KEY not in parts.hot.content
        assert MANIFEST_KEY not in parts.cold.content


async def test_bad_source_leaves_no_record(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        await to_thread.run_sync(os.truncate, parts.source, 2000)
        with pytest.raises(SourceError):
            await parts.weights.put(IDENTITY, parts.source)
        with pytest.raises(WeightError) as caught:
            await parts.availability()
        assert caught.value.code is ErrorCode.NOT_FOUND


async def test_source_whose_manifest_could_not_be_read_back_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "MANIFEST_BYTES_MAX", 1000)
    async with rig(tmp_path) as parts:
        with pytest.raises(SourceError, match="manifest would have"):
            await parts.weights.put(IDENTITY, parts.source)
        assert list(parts.store.records()) == []


@pytest.mark.parametrize(
    "identity",
    [
        Identity(namespace="", resource_id="r", revision="v", weight_generation=1),
        Identity(namespace="n", resource_id="r", revision="v", weight_generation=0),
        Identity(namespace="n", resource_id="r\udcff", revision="v", weight_generation=1),
    ],
)
async def test_identity_that_no_manifest_can_name_is_refused(
    tmp_path: Path, identity: Identity
) -> None:
    async with rig(tmp_path) as parts:
        with pytest.raises(WeightError) as caught:
            await parts.weights.put(identity, parts.source)
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
        assert list(parts.store.records()) == []


async def test_import_that_was_aborted_meanwhile_writes_nothing_more(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        held: list[int] = []

        async def abort(key: str) -> None:
            held.append(len(parts.hot.content))
            if len(held) == 3:
                await parts.store.abort_import(identity=IDENTITY, expected_metadata_generation=1)

        parts.hot.faults.before_store = abort
        with pytest.raises(FencedError, match="DELETING"):
            await parts.weights.put(IDENTITY, parts.source)
        assert len(parts.hot.content) == held[2]


# --- placement ------------------------------------------------------------------------------------


def store_over(parts: Rig, *tiers: PlainTier) -> WeightStore:
    return WeightStore(
        parts.store,
        tiers,
        clock=parts.clock,
        entropy=parts.weights._entropy,
        options=WeightStoreOptions(payload_bytes=2000),
    )


async def test_import_goes_to_the_first_tiers_with_room(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        tiers = [
            PlainTier("small-hot", hot=True, capacity_bytes=100),
            PlainTier("small-cold", hot=False, capacity_bytes=100),
            PlainTier("cold", hot=False),
            PlainTier("hot", hot=True),
            PlainTier("spare", hot=False),
        ]
        report = await store_over(parts, *tiers).put(IDENTITY, parts.source)
        assert report.tiers == ("hot", "cold")
        assert not tiers[0].content
        assert not tiers[1].content
        assert not tiers[4].content


async def test_import_that_fits_nowhere_says_what_it_needs(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        hot = PlainTier("hot", hot=True, capacity_bytes=100)
        told: list[Progress] = []
        with pytest.raises(CapacityError, match="hot: needs") as caught:
            await store_over(parts, hot, parts.cold).put(
                IDENTITY, parts.source, progress=told.append
            )
        assert caught.value.needed_bytes > caught.value.free_bytes == 100
        assert not told  # a source is not read for minutes before it is refused for its size
        assert not parts.cold.content
        await is_free(parts)


async def test_import_without_a_persistent_tier_must_be_asked_for(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        weights = store_over(parts, parts.hot)
        with pytest.raises(ConfigError, match="persistent cold"):
            await weights.put(IDENTITY, parts.source)
        report = await weights.put(IDENTITY, parts.source, tiers=["memory"])
        assert report.tiers == ("memory",)
        with pytest.raises(ConfigError, match="known are memory"):
            await weights.put(
                Identity(namespace="n", resource_id="r", revision="v", weight_generation=2),
                parts.source,
                tiers=["memry"],
            )


async def test_writer_gives_signs_of_life_while_bytes_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "SMALL_BYTES", 0)
    async with rig(tmp_path) as parts:
        idle: list[float] = []

        async def slowly(key: str) -> None:
            idle.append(parts.store.import_idle_s(identity=IDENTITY))
            parts.clock.jump(100)

        parts.cold.faults.before_store = slowly
        await parts.weights.put(IDENTITY, parts.source)
        assert len(idle) > 5
        assert max(idle) < 100  # although more than 500 virtual seconds passed


@pytest.mark.one_loop
async def test_fifty_thousand_members_in_one_group_are_put_and_loaded(tmp_path: Path) -> None:
    model = {f"t{n}": ("U8", (8,), n.to_bytes(8, "little")) for n in range(50_000)}
    async with rig(tmp_path, payload_bytes=8) as parts:
        source = await to_thread.run_sync(write_model, tmp_path / "many.safetensors", model)
        report = await parts.weights.put(IDENTITY, source)
        assert report.payload_count == 50_000
        names = list(model)[::97]
        loaded = await parts.weights.load(IDENTITY, names)
        assert contents(loaded.tensors) == {name: model[name] for name in names}


# --- what the reference may be --------------------------------------------------------------------


@pytest.mark.acceptance(129)
@pytest.mark.parametrize("digest", ["A" * 64, "0" * 63, "g" * 64])
@pytest.mark.parametrize("name", ["manifest_sha256", "payload_keys_sha256"])
async def test_digest_that_is_not_lower_case_sha256_is_refused(
    tmp_path: Path, digest: str, name: str
) -> None:
    async with rig(tmp_path) as parts:
        parts.cold.faults.outcomes = [Permanent(detail="stop before the commit")]
        with pytest.raises(TerminalError):
            await parts.weights.put(IDENTITY, parts.source)
        record = (await parts.store.get(identity=IDENTITY)).metadata
        good: dict[str, Any] = {
            "manifest_key": MANIFEST_KEY,
            "manifest_sha256": "0" * 64,
            "payload_keys_sha256": "0" * 64,
            "payload_group_id": record.manifest.payload_group_id,
            "payload_count": record.manifest.payload_count,
            "logical_bytes": record.manifest.logical_bytes,
        }
        assert set(good) == {field.name for field in fields(ManifestReference)}
        with pytest.raises(WeightError) as caught:
            await parts.store.commit_import(
                identity=IDENTITY,
                expected_metadata_generation=1,
                manifest=ManifestReference(**{**good, name: digest}),
            )
        assert caught.value.code is ErrorCode.INVALID_ARGUMENT
