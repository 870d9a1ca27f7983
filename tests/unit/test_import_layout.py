"""How an import is cut: bounded objects, sequential reads, and the same plan every time."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.models import random_tensors
from weightctl.controller.core.identity import Identity
from weightctl.controller.core.manifest import payload_summary
from weightctl.controller.core.manifest_rules import validate
from weightctl.controller.weightstore.layout import (
    SCALAR,
    build_manifest,
    created_at,
    plan_layout,
)
from weightctl.controller.weightstore.safetensors import ITEM_BYTES, Header, TensorEntry

IDENTITY = Identity(namespace="n", resource_id="r", revision="v", weight_generation=1)


def header(shapes: Mapping[str, tuple[str, tuple[int, ...]]], data_offset: int = 100) -> Header:
    entries, start = [], 0
    for name, (dtype, shape) in shapes.items():
        size = ITEM_BYTES[dtype]
        for dim in shape:
            size *= dim
        entries.append(
            TensorEntry(name=name, dtype=dtype, shape=shape, start=start, stop=start + size)
        )
        start += size
    return Header(entries=tuple(entries), data_offset=data_offset, metadata={})


shapes = st.tuples(
    st.sampled_from(["U8", "F16", "F32", "F64"]),
    st.lists(st.integers(1, 7), max_size=4).map(tuple),
)
files = st.lists(st.lists(shapes, min_size=1, max_size=5), min_size=1, max_size=3)


@given(files, st.integers(8, 200))
def test_layout_is_a_valid_manifest_of_bounded_sequential_objects(
    models: list[list[Any]], limit: int
) -> None:
    headers = [
        header({f"{number}.{index}": kind for index, kind in enumerate(kinds)})
        for number, kinds in enumerate(models)
    ]
    layout = plan_layout(IDENTITY, headers, limit)
    manifest = build_manifest(IDENTITY, layout, 0)
    validate(manifest)
    assert all(payload.nbytes <= limit for payload in layout.payloads)
    assert payload_summary(manifest).object_bytes == {
        payload.key: payload.nbytes for payload in layout.payloads
    }
    for number, each in enumerate(headers):
        position = each.data_offset
        for payload in layout.payloads:
            if payload.file == number:
                assert payload.offset == position
                position += payload.nbytes
        assert position == each.data_offset + each.entries[-1].stop
    assert plan_layout(IDENTITY, headers, limit) == layout


def test_small_tensors_share_an_object_and_a_large_one_is_cut_into_rows() -> None:
    layout = plan_layout(
        IDENTITY, [header({"a": ("U8", (10,)), "b": ("U8", (20,)), "w": ("U8", (7, 10))})], 32
    )
    assert [payload.nbytes for payload in layout.payloads] == [30, 30, 30, 10]
    assert [item.local_shape for item in layout.fragments if item.tensor_id == "w"] == [
        (3, 10),
        (3, 10),
        (1, 10),
    ]


def test_row_wider_than_an_object_is_cut_within_the_row() -> None:
    layout = plan_layout(IDENTITY, [header({"w": ("F32", (2, 1, 20))})], 32)
    assert [(item.global_offset, item.local_shape) for item in layout.fragments] == [
        ((row, 0, start), (1, 1, extent))
        for row in (0, 1)
        for start, extent in ((0, 8), (8, 8), (16, 4))
    ]


def test_scalar_is_kept_apart_from_a_vector_of_one() -> None:
    layout = plan_layout(IDENTITY, [header({"s": ("F32", ()), "v": ("F32", (1,))})], 64)
    assert [(item.global_shape, item.layout_fingerprint == SCALAR) for item in layout.tensors] == [
        ((1,), True),
        ((1,), False),
    ]


@pytest.mark.parametrize(
    "wall_ms, text",
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (2**64 - 1, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_time_of_a_manifest_is_the_records(wall_ms: int, text: str) -> None:
    assert created_at(wall_ms) == text


def test_fifty_thousand_tensors_are_laid_out() -> None:
    kinds = {f"t{index}": ("F16", (3, 5)) for index in range(50_000)}
    layout = plan_layout(IDENTITY, [header(kinds)], 1024 * 1024)
    assert len(layout.fragments) == 50_000
    assert len(layout.payloads) == 2


def test_example_models_have_every_shape_kind() -> None:
    assert {len(shape) for _, shape, _ in random_tensors().values()} == {0, 1, 2, 3}
