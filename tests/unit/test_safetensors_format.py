"""The strict header parser: every malformed file is refused by one error, early and bounded."""

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from tests.support.models import random_tensors, write_model
from weightctl.controller.errors import SourceError
from weightctl.controller.weightstore.safetensors import (
    HEADER_BYTES_MAX,
    encode_header,
    header_bytes,
    parse_header,
)
from weightctl.controller.weightstore.source import ModelSource


def entry(start: int, stop: int, **changes: Any) -> dict[str, Any]:
    return {"dtype": "U8", "shape": [stop - start], "data_offsets": [start, stop], **changes}


def spelled(document: object) -> bytes:
    return json.dumps(document).encode()


def framed(raw: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(raw)) + raw + data


BAD_HEADERS = [
    ("not-json", b"{", 0, "not JSON"),
    ("empty-header", b"", 0, "not JSON"),
    ("not-utf8", b'{"\xff":1}', 0, "not JSON in UTF-8"),
    ("array", b"[]", 0, "not a JSON object"),
    ("nesting", b'{"a":' * 100_000, 0, "not JSON"),
    ("digits", b'{"a":' + b"9" * 10_000 + b"}", 0, "not JSON"),
    ("duplicate-name", b'{"a":{},"a":{}}', 0, "'a' twice"),
    ("duplicate-field", b'{"a":{"dtype":"U8","dtype":"U8"}}', 0, "'dtype' twice"),
    ("metadata-number", spelled({"__metadata__": {"format": 1}}), 0, "text to text"),
    ("metadata-text", spelled({"__metadata__": "pt"}), 0, "text to text"),
    ("entry-text", spelled({"a": "x"}), 0, "exactly dtype"),
    ("entry-extra", spelled({"a": entry(0, 1, more=1)}), 1, "exactly dtype"),
    ("no-name", spelled({"": entry(0, 1)}), 1, "no usable name"),
    ("lone-surrogate", b'{"\\ud800":{}}', 1, "no usable name"),
    ("unknown-dtype", spelled({"a": entry(0, 1, dtype="U9")}), 1, "unknown or sub-byte dtype"),
    ("sub-byte-dtype", spelled({"a": entry(0, 1, dtype="F4")}), 1, "unknown or sub-byte dtype"),
    ("dtype-list", spelled({"a": entry(0, 1, dtype=["U8"])}), 1, "unknown or sub-byte dtype"),
    ("shape-float", spelled({"a": entry(0, 1, shape=[1.0])}), 1, "shape"),
    ("shape-bool", spelled({"a": entry(0, 1, shape=[True])}), 1, "shape"),
    ("shape-negative", spelled({"a": entry(0, 1, shape=[-1])}), 1, "shape"),
    ("shape-huge", spelled({"a": entry(0, 1, shape=[2**64])}), 1, "shape"),
    ("rank-huge", spelled({"a": entry(0, 1, shape=[1] * 65)}), 1, "shape"),
    ("product-huge", spelled({"a": entry(0, 1, shape=[2**63] * 60)}), 1, "needs"),
    ("zero-elements", spelled({"a": entry(0, 0, shape=[0, 4])}), 0, "no elements"),
    ("offsets-backward", spelled({"a": entry(0, 1, data_offsets=[1, 0])}), 1, "data_offsets"),
    ("offsets-three", spelled({"a": entry(0, 1, data_offsets=[0, 1, 2])}), 1, "data_offsets"),
    ("offsets-float", spelled({"a": entry(0, 1, data_offsets=[0, 1.0])}), 1, "data_offsets"),
    ("size-mismatch", spelled({"a": entry(0, 2, shape=[1])}), 2, "needs 1 bytes and claims 2"),
    ("overlap", spelled({"a": entry(0, 4), "b": entry(2, 6)}), 6, "overlaps"),
    ("same-place", spelled({"a": entry(0, 4), "b": entry(0, 4)}), 4, "overlaps"),
    ("hole", spelled({"a": entry(0, 4), "b": entry(5, 6)}), 6, "hole"),
    ("hole-at-start", spelled({"a": entry(1, 2)}), 2, "hole"),
    ("beyond-the-file", spelled({"a": entry(0, 4)}), 3, "the file holds 3"),
    ("trailing-bytes", spelled({"a": entry(0, 4)}), 5, "belong to no tensor"),
    ("20-gb-declared", spelled({"a": entry(0, 20_000_000_000)}), 100, "the file holds 100"),
]


@pytest.mark.parametrize(
    "raw, data_bytes, why",
    [case[1:] for case in BAD_HEADERS],
    ids=[case[0] for case in BAD_HEADERS],
)
def test_bad_header_is_refused_with_three_parts(raw: bytes, data_bytes: int, why: str) -> None:
    with pytest.raises(SourceError, match=why) as caught:
        parse_header("model", raw, 8 + len(raw) + data_bytes)
    assert caught.value.what
    assert caught.value.why
    assert caught.value.todo


@pytest.mark.parametrize(
    "content, why",
    [
        (b"", "too few"),
        (b"1234567", "too few"),
        (struct.pack("<Q", 2**63) + b"{}", "more than"),
        (struct.pack("<Q", HEADER_BYTES_MAX + 1) + b"{}", "more than"),
        (struct.pack("<Q", 3) + b"{}", "ends after 10"),
        (framed(b"{}"), "no tensor"),
        (framed(b'{"__metadata__":{}}'), "no tensor"),
    ],
)
def test_truncated_or_empty_file_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=why), ModelSource(path):
        pass


def test_twenty_declared_gigabytes_in_a_truncated_file_are_refused_before_reading(
    tmp_path: Path,
) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(framed(spelled({"a": entry(0, 20_000_000_000)}), b"x" * 4096))
    with pytest.raises(SourceError, match="the file holds 4096"), ModelSource(path):
        pass


def test_header_length_is_checked_before_it_is_read() -> None:
    assert header_bytes("model", struct.pack("<Q", 2), 10) == 2


def test_our_files_are_read_by_the_formats_own_library_and_back(tmp_path: Path) -> None:
    tensors = {name: value for name, value in random_tensors().items() if value[0] != "F8_E4M3"}
    path = write_model(tmp_path / "ours.safetensors", tensors)
    loaded: Any = safetensors.deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    assert {
        name: (item["dtype"], tuple(item["shape"]), bytes(item["data"])) for name, item in loaded
    } == tensors


def test_library_files_are_read_in_the_order_of_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "theirs.safetensors"
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "b": np.arange(6, dtype=np.int64),
        "a": np.zeros((2, 3), dtype=np.float16),
    }
    safetensors.numpy.save_file(arrays, path, metadata={"format": "np"})
    with ModelSource(path) as source:
        header = source.files[0].header
        starts = [item.start for item in header.entries]
        assert starts == sorted(starts)
        assert header.metadata == {"format": "np"}
        for item in header.entries:
            content = bytearray(item.stop - item.start)
            source.read_into(source.files[0], header.data_offset + item.start, memoryview(content))
            assert bytes(content) == arrays[item.name].tobytes()


@given(st.binary(max_size=300))
def test_any_bytes_are_parsed_or_refused_and_never_crash(raw: bytes) -> None:
    try:
        parse_header("model", raw, 8 + len(raw) + 10)
    except SourceError as error:
        assert error.why  # noqa: PT017 - acceptance is fine too, a crash is not


@given(st.data())
def test_flipped_bytes_of_a_header_never_crash_and_never_reach_beyond_the_file(data: Any) -> None:
    document = {"a": entry(0, 4), "b": entry(4, 12, dtype="F32", shape=[2])}
    raw = bytearray(spelled(document))
    for _ in range(data.draw(st.integers(1, 5))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        header = parse_header("model", bytes(raw), 8 + len(raw) + 12)
    except SourceError as error:
        assert error.todo  # noqa: PT017 - acceptance is fine too, a crash is not
    else:
        assert sum(item.stop - item.start for item in header.entries) == 12


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda name: name != "__metadata__"
)


@given(st.dictionaries(names, st.lists(st.integers(1, 5), max_size=4), min_size=1, max_size=6))
def test_encoded_headers_are_parsed_back(shapes: dict[str, list[int]]) -> None:
    document, start = {}, 0
    for name, shape in shapes.items():
        size = 2
        for dim in shape:
            size *= dim
        document[name] = entry(start, start + size, dtype="F16", shape=shape)
        start += size
    raw = spelled(document)
    header = parse_header("model", raw, 8 + len(raw) + start)
    again = encode_header(header.entries, {"k": "ü"})
    assert len(again) % 8 == 0
    parsed = parse_header("model", again[8:], len(again) + start)
    assert parsed.entries == header.entries
    assert parsed.metadata == {"k": "ü"}


# --- folders --------------------------------------------------------------------------------------


def one(name: str) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {name: ("U8", (3,), b"abc")}


def test_folder_is_read_in_name_order(tmp_path: Path) -> None:
    write_model(tmp_path / "model-00002-of-00002.safetensors", one("b"))
    write_model(tmp_path / "model-00001-of-00002.safetensors", one("a"))
    (tmp_path / "config.json").write_text("{}")
    with ModelSource(tmp_path) as source:
        assert [file.header.entries[0].name for file in source.files] == ["a", "b"]


def index_of(folder: Path, weight_map: object) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_index_chooses_the_files(tmp_path: Path) -> None:
    write_model(tmp_path / "model.safetensors", one("a"))
    write_model(tmp_path / "adapter.safetensors", one("other"))
    index_of(tmp_path, {"a": "model.safetensors"})
    with ModelSource(tmp_path) as source:
        assert [Path(file.path).name for file in source.files] == ["model.safetensors"]


def _missing_shard(folder: Path) -> None:
    write_model(folder / "model-00001-of-00002.safetensors", one("a"))


def _twice(folder: Path) -> None:
    write_model(folder / "x.safetensors", one("a"))
    write_model(folder / "y.safetensors", one("a"))


def _index_of_another(folder: Path) -> None:
    write_model(folder / "model.safetensors", one("a"))
    index_of(folder, {"a": "model.safetensors", "gone": "model.safetensors"})


def _index_outside(folder: Path) -> None:
    write_model(folder / "model.safetensors", one("a"))
    index_of(folder, {"a": "../model.safetensors"})


def _index_of_nothing(folder: Path) -> None:
    write_model(folder / "model.safetensors", one("a"))
    index_of(folder, [])


def _broken_index(folder: Path) -> None:
    write_model(folder / "model.safetensors", one("a"))
    (folder / "model.safetensors.index.json").write_bytes(b"\xff{")


def _index_to_a_missing_file(folder: Path) -> None:
    write_model(folder / "model.safetensors", one("a"))
    index_of(folder, {"a": "absent.safetensors"})


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "model.safetensors")


def _index_that_is_a_pipe(folder: Path) -> None:
    (folder / "model.safetensors").touch()
    os.mkfifo(folder / "model.safetensors.index.json")


def _index_that_never_ends(folder: Path) -> None:
    (folder / "model.safetensors").touch()
    (folder / "model.safetensors.index.json").symlink_to("/dev/zero")


@pytest.mark.parametrize(
    "make, why",
    [
        (_missing_shard, r"parts \[2\] of 2"),
        (_twice, "is in .*x.safetensors and in .*y.safetensors"),
        (_index_of_another, "disagree about"),
        (_index_outside, "not a file beside it"),
        (_index_of_nothing, "no weight_map"),
        (_broken_index, "not JSON"),
        (_index_to_a_missing_file, "cannot be opened"),
        (_pipe, "not a regular file"),
        (_index_that_is_a_pipe, "not a regular file"),
        (_index_that_never_ends, "not a regular file"),
        (lambda folder: None, "holds no"),
    ],
)
def test_folder_that_is_not_one_whole_model_is_refused(tmp_path: Path, make: Any, why: str) -> None:
    make(tmp_path)
    with pytest.raises(SourceError, match=why), ModelSource(tmp_path):
        pass


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b", ""])
def test_a_path_that_no_file_can_have_is_refused(name: str) -> None:
    with pytest.raises(SourceError), ModelSource(name):
        pass


def test_the_last_of_very_many_names_twice_is_found_in_one_pass() -> None:
    """Counting each name anew would take hours for a header of the largest size."""
    names = [str(number) for number in range(200_000)]
    raw = "{" + ",".join(f'"{name}":1' for name in [*names, names[-1]]) + "}"
    with pytest.raises(SourceError, match="names '199999' twice"):
        parse_header("file", raw.encode(), 10**9)


@pytest.mark.parametrize("bracket", ["[],", "{},"])
def test_a_header_of_brackets_is_refused_before_it_takes_memory(bracket: str) -> None:
    """One of the largest size took 2.4 GiB and 15 s to be refused for its shape."""
    raw = '{"a":[' + bracket * 200_000 + "0]}"
    with pytest.raises(SourceError, match="brackets"):
        parse_header("file", raw.encode(), 10**9)


def test_missing_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be opened"), ModelSource(tmp_path / "absent"):
        pass


def test_descriptors_are_closed_also_when_a_later_file_is_bad(tmp_path: Path) -> None:
    write_model(tmp_path / "a.safetensors", one("a"))
    (tmp_path / "b.safetensors").write_bytes(b"bad")
    before = sorted(Path("/proc/self/fd").iterdir())
    with pytest.raises(SourceError), ModelSource(tmp_path):
        pass
    assert sorted(Path("/proc/self/fd").iterdir()) == before


@pytest.mark.parametrize("change", ["write", "grow", "replace", "remove", "shrink"])
def test_change_of_a_source_since_opening_is_noticed(tmp_path: Path, change: str) -> None:
    path = write_model(tmp_path / "model.safetensors", one("a"))
    raw = path.read_bytes()
    with ModelSource(path) as source:
        source.check_unchanged()
        if change == "replace":
            path.rename(tmp_path / "old")
            path.write_bytes(raw)
        elif change == "remove":
            path.unlink()
        else:
            content = {"write": raw[:-1] + b"!", "grow": raw + b"!", "shrink": raw[:-1]}
            path.write_bytes(content[change])
            os.utime(path, ns=(1, source.files[0].mark[3]))
        with pytest.raises(SourceError, match="changed while it was read"):
            source.check_unchanged()


def test_read_beyond_a_shrunken_file_is_a_change(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.safetensors", one("a"))
    with ModelSource(path) as source:
        os.truncate(path, 20)
        with pytest.raises(SourceError, match="ends at byte"):
            source.read_into(source.files[0], 0, memoryview(bytearray(64)))
