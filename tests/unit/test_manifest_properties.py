"""Properties of manifests, box tilings and range plans, against slow and obvious models."""

import json
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.manifests import PAYLOAD, fragment, manifest, tensor, two_halves
from tests.support.stored_models import Objects, StoredModel, cut, shapes, stored
from weightctl.controller.core.boxes import Box, tiling_problem
from weightctl.controller.core.manifest import (
    StoredWeightManifest,
    canonical_bytes,
    manifest_digest,
    payload_summary,
)
from weightctl.controller.core.manifest_codec import parse_manifest
from weightctl.controller.core.manifest_rules import validate
from weightctl.controller.core.ranges import RangePlan, TensorSlice, plan_ranges
from weightctl.controller.errors import ErrorCode, ManifestError, WeightError


def carry_out(plan: RangePlan, objects: Objects) -> list[bytes]:
    """Copy every piece of every read; each target byte must be written exactly once."""
    buffers = [bytearray(target.nbytes) for target in plan.targets]
    written = [np.zeros(target.nbytes, dtype=np.uint8) for target in plan.targets]
    for read in plan.reads:
        content = objects[read.object_key][read.offset : read.offset + read.nbytes]
        assert len(content) == read.nbytes
        for piece in plan.pieces(read):
            start = piece.source - read.offset
            assert 0 <= start <= read.nbytes - piece.nbytes
            stop = piece.offset + piece.nbytes
            buffers[piece.target][piece.offset : stop] = content[start : start + piece.nbytes]
            written[piece.target][piece.offset : stop] += 1
    assert all((counts == 1).all() for counts in written)
    return [bytes(buffer) for buffer in buffers]


@given(stored(), st.data())
def test_planned_ranges_bring_exactly_the_wanted_slices(model: StoredModel, data: Any) -> None:
    described, objects, arrays = model
    validate(described)
    wanted, expected = [], []
    for index in data.draw(st.lists(st.integers(0, len(arrays) - 1), max_size=6)):
        values = arrays[index]
        dim = data.draw(st.none() | st.integers(0, values.ndim - 1))
        if dim is None:
            wanted.append(TensorSlice(tensor_id=f"t{index}"))
            expected.append(values.tobytes())
            continue
        start = data.draw(st.integers(0, values.shape[dim] - 1))
        stop = data.draw(st.integers(start + 1, values.shape[dim]))
        wanted.append(TensorSlice(tensor_id=f"t{index}", dim=dim, start=start, stop=stop))
        expected.append(values.take(range(start, stop), axis=dim).tobytes())
    gap = data.draw(st.sampled_from([0, 4, 1000]))
    plan = plan_ranges(described, wanted, gap_bytes=gap)
    assert carry_out(plan, objects) == expected
    order = [(read.object_key, read.offset) for read in plan.reads]
    assert order == sorted(order)
    for one, two in zip(plan.reads, plan.reads[1:], strict=False):
        assert one.object_key != two.object_key or one.offset + one.nbytes + gap < two.offset


@given(stored())
def test_canonical_bytes_survive_a_round_trip(model: StoredModel) -> None:
    described, objects, _ = model
    raw = canonical_bytes(described)
    assert parse_manifest(raw) == described
    assert parse_manifest(json.dumps(json.loads(raw), indent=3).encode()) == described
    assert manifest_digest(parse_manifest(raw)) == manifest_digest(described)
    assert payload_summary(described).object_bytes == {
        key: len(content) for key, content in sorted(objects.items())
    }


@given(shapes, st.data())
def test_tiling_is_judged_like_counting_every_cell(shape: tuple[int, ...], data: Any) -> None:
    boxes = cut(shape, data.draw)
    if data.draw(st.booleans()):
        index = data.draw(st.integers(0, len(boxes) - 1))
        offset, extent = boxes[index]
        moved = tuple(
            data.draw(st.integers(0, size - n)) for size, n in zip(shape, extent, strict=True)
        )
        boxes[index] = (moved, extent)
    counts = np.zeros(shape, dtype=int)
    for offset, extent in boxes:
        counts[tuple(slice(a, a + n) for a, n in zip(offset, extent, strict=True))] += 1
    assert (tiling_problem(shape, boxes) is None) == bool((counts == 1).all())


def test_pinwheel_tiling_needs_no_common_cut() -> None:
    pinwheel: list[Box] = [
        ((0, 0), (1, 2)),
        ((0, 2), (2, 1)),
        ((2, 1), (1, 2)),
        ((1, 0), (2, 1)),
        ((1, 1), (1, 1)),
    ]
    assert tiling_problem((3, 3), pinwheel) is None
    pinwheel[4] = ((0, 1), (1, 1))
    assert tiling_problem((3, 3), pinwheel) == "has overlapping fragments"


def test_tensor_split_along_too_many_dimensions_is_refused() -> None:
    halves = [(corner, (1,) * 9) for corner in product((0, 1), repeat=9)]
    assert "9 dimensions" in str(tiling_problem((2,) * 9, halves))


@pytest.mark.parametrize(
    "wanted, code",
    [
        (TensorSlice(tensor_id="missing"), ErrorCode.NOT_FOUND),
        (TensorSlice(tensor_id="w", dim=2, stop=1), ErrorCode.INVALID_ARGUMENT),
        (TensorSlice(tensor_id="w", dim=-1, stop=1), ErrorCode.INVALID_ARGUMENT),
        (TensorSlice(tensor_id="w", dim=0, start=8), ErrorCode.INVALID_ARGUMENT),
        (TensorSlice(tensor_id="w", dim=0, start=2, stop=2), ErrorCode.INVALID_ARGUMENT),
        (TensorSlice(tensor_id="w", dim=0, start=-1, stop=2), ErrorCode.INVALID_ARGUMENT),
        (TensorSlice(tensor_id="w", dim=0, stop=9), ErrorCode.INVALID_ARGUMENT),
        (TensorSlice(tensor_id="w", start=1), ErrorCode.INVALID_ARGUMENT),
        (TensorSlice(tensor_id="w", stop=1), ErrorCode.INVALID_ARGUMENT),
    ],
)
def test_unknown_tensor_and_bad_slice_are_refused(wanted: TensorSlice, code: ErrorCode) -> None:
    with pytest.raises(WeightError) as caught:
        plan_ranges(two_halves(), [wanted])
    assert caught.value.code is code


def test_slice_of_absurdly_many_pieces_is_refused_early() -> None:
    shape = (2**40, 2)
    wide = manifest((tensor("w", shape),), (fragment("f0", "w", ((0, 0), shape), object_offset=0),))
    with pytest.raises(WeightError, match="pieces"):
        plan_ranges(wide, [TensorSlice(tensor_id="w", dim=1, start=0, stop=1)])


def test_fragments_that_touch_in_one_object_become_one_read_and_one_piece() -> None:
    plan = plan_ranges(two_halves(), [TensorSlice(tensor_id="w")])
    assert [(read.offset, read.nbytes) for read in plan.reads] == [(0, 64)]
    assert len(plan.sizes) == 1
    assert plan.read_bytes == 64


def many_tensors(count: int) -> StoredWeightManifest:
    return manifest(
        tuple(tensor(f"t{index}", (3, 5)) for index in range(count)),
        tuple(
            fragment(
                f"f{index}",
                f"t{index}",
                ((0, 0), (3, 5)),
                object_key=f"{PAYLOAD}{index // 100}",
                object_offset=index % 100 * 30,
            )
            for index in range(count)
        ),
    )


def test_fifty_thousand_tensors_plan_to_one_read_an_object() -> None:
    described = many_tensors(50_000)
    assert parse_manifest(canonical_bytes(described)) == described
    plan = plan_ranges(
        described, [TensorSlice(tensor_id=item.tensor_id) for item in described.tensors]
    )
    assert len(plan.reads) == 500
    assert plan.read_bytes == 50_000 * 30


def test_one_tensor_in_fifty_thousand_fragments_is_checked() -> None:
    rows = [
        fragment(f"f{row}", "w", ((row // 2, row % 2), (1, 1)), object_offset=2 * row)
        for row in range(50_000)
    ]
    described = manifest((tensor("w", (25_000, 2)),), tuple(rows))
    validate(described)
    rows[7] = replace(rows[7], global_offset=(7, 1))
    with pytest.raises(ManifestError):
        validate(replace(described, fragments=tuple(rows)))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
NAMES = [*two_halves().__slots__, "extra"]


@given(st.sampled_from(NAMES), st.sampled_from(["", "tensors", "fragments"]), st.data())
def test_any_value_in_any_field_is_refused_or_accepted_and_never_crashes(
    name: str, inside: str, data: Any
) -> None:
    parsed = json.loads(canonical_bytes(two_halves()))
    place = parsed[inside][0] if inside else parsed
    field = data.draw(st.sampled_from([*place, name]))
    place[field] = data.draw(json_values)
    try:
        accepted = parse_manifest(json.dumps(parsed).encode("utf-8", "surrogatepass"))
    except ManifestError as error:
        assert error.why  # noqa: PT017 - acceptance is fine too, a crash is not
    else:
        assert parse_manifest(canonical_bytes(accepted)) == accepted


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_by_the_one_error(raw: bytes) -> None:
    with pytest.raises(ManifestError):
        parse_manifest(raw)


@given(st.data())
def test_flipped_bytes_of_a_manifest_never_crash_the_parser(data: Any) -> None:
    raw = bytearray(canonical_bytes(two_halves()))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        validate(parse_manifest(bytes(raw)))
    except ManifestError as error:
        assert error.todo  # noqa: PT017 - acceptance is fine too, a crash is not
