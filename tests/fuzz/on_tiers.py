"""Targets: what lies in the folders and on the devices of the tiers."""

import json
from contextlib import suppress
from dataclasses import replace

from tests.fuzz import scratch
from tests.fuzz.target import Fault, Target, same
from tests.support.nof_media import HOLDER, UUID, MemoryMedium
from weightctl.adapters.nof.device import NofDevice
from weightctl.adapters.nof.dump import _summary
from weightctl.adapters.nof.header import read_superblock
from weightctl.adapters.nof.index import IndexLog, payload_bytes_max
from weightctl.adapters.nof.layout import (
    BLOCK_BYTES,
    DEVICE_BYTES_MIN,
    DIGEST_BYTES,
    SLOT_OFFSETS,
    Geometry,
    Superblock,
    checksum,
    decode_superblock,
    encode_superblock,
)
from weightctl.adapters.nof.records import (
    Catalog,
    Change,
    Drop,
    FenceTerm,
    Put,
    Quarantine,
    Replica,
    pack,
    refuse_misfit,
    unpack,
)
from weightctl.adapters.nof.writer import IndexWriter, load_catalog
from weightctl.adapters.shared import fencing, markers, remembering
from weightctl.adapters.shared.files import SMALL_BYTES_MAX
from weightctl.adapters.shared.folders import text_of
from weightctl.controller.errors import ConfigError, FencedError, TerminalError, TransientError
from weightctl.controller.ports import Fence

# --- small files of a folder ----------------------------------------------------------------------


def _parse_marker(raw: bytes) -> markers.Marker | None:
    scratch.written(markers.MARKER_FILE, raw)
    return markers._read_marker(scratch.descriptor(), scratch.folder())


def _check_marker(value: markers.Marker | None, raw: bytes) -> None:
    if value is None:
        raise Fault("a marker that is there is not seen")
    same(_parse_marker(value.encode()), value, "marker read back")
    if "/" in value.uuid or "\n" in value.owner:
        raise Fault(f"{value} is no name")


def _marker_seeds() -> list[bytes]:
    known = markers.Marker(uuid="boot-1f", kind="memory", owner="0f")
    newer = {"format": 2, "kind": "nof", "uuid": "a"}
    return [known.encode(), replace(known, owner="").encode(), json.dumps(newer).encode()]


def _parse_remembered(raw: bytes) -> str:
    return remembering.read_remembered(scratch.written("tier.uuid", raw))


def _check_remembered(value: str, raw: bytes) -> None:
    if not value or len(value) > 64:
        raise Fault(f"{value!r} is taken for a uuid")


def _parse_fence(raw: bytes) -> dict[str, int]:
    scratch.written(fencing.FENCE_FILE, raw)
    return fencing._load(scratch.descriptor())


def _check_fence(value: dict[str, int], raw: bytes) -> None:
    """A term that was served keeps lower ones of its holder out, and survives being written."""
    same(_parse_fence(json.dumps(value).encode()), value, "terms read back")
    for holder, term in list(value.items())[:4]:
        older = Fence(holder=holder, term=term - 1, operation_id=1, generation=1)
        try:
            fencing.admit(scratch.descriptor(), older, durable=False)
        except FencedError:
            continue
        raise Fault(f"term {term - 1} of {holder!r} is served after {term}")


_LONG = "%%" + "a7" * 32


def _parse_long_name(raw: bytes) -> str:
    scratch.written(f"{_LONG}~name", raw)
    return text_of(scratch.descriptor(), _LONG)


def _check_long_name(value: str, raw: bytes) -> None:
    raise Fault(f"{value!r:.80} is taken for a text of that digest")


# --- nof: superblock ------------------------------------------------------------------------------

_GEOMETRY = Geometry.of_size(DEVICE_BYTES_MIN)
_SUPERBLOCK = Superblock(
    uuid=UUID,
    generation=1,
    geometry=_GEOMETRY,
    half=0,
    epoch=1 << 32,
    claim=1,
    sequence=0,
    clean=False,
    holder=HOLDER,
    owner="0f" * 16,
)
_MAGIC = encode_superblock(_SUPERBLOCK)[:10]
"""And the version."""
_IMAGE = bytearray(DEVICE_BYTES_MIN)
_VIEW = memoryview(_IMAGE)


class _Medium(MemoryMedium):
    """Reads with one copy, many thousand times a second."""

    def read_into(self, offset: int, buffer: memoryview) -> None:
        buffer[:] = _VIEW[offset : offset + len(buffer)]


def _medium() -> MemoryMedium:
    return _Medium(_IMAGE)


def _block(raw: bytes) -> bytes:
    return raw[:BLOCK_BYTES].ljust(BLOCK_BYTES, b"\0")


def _parse_superblock(raw: bytes) -> Superblock:
    """Both slots: the first block of the input, and the second one."""
    medium = _medium()
    for at, offset in enumerate(SLOT_OFFSETS):
        medium.data[offset : offset + BLOCK_BYTES] = _block(raw[at * BLOCK_BYTES :])
    return read_superblock(medium)


def _check_superblock(value: Superblock, raw: bytes) -> None:
    """What is accepted can be written again, and all that lies on the device lies within it."""
    same(decode_superblock(encode_superblock(value)), value, "superblock read back")
    geometry = value.geometry
    if not 0 < geometry.data_offset < geometry.total_bytes <= DEVICE_BYTES_MIN:
        raise Fault(f"{geometry} does not fit")
    if geometry.half_bytes % BLOCK_BYTES or geometry.total_bytes % BLOCK_BYTES:
        raise Fault(f"{geometry} is not of whole blocks")
    if payload_bytes_max(geometry) <= 0:
        raise Fault(f"{geometry} has no room for a frame")
    for line in _summary(value, Catalog()):
        line.encode()
    if geometry != _GEOMETRY:
        with suppress(TerminalError):  # whatever lies there
            load_catalog(_medium(), replace(value, sequence=0, clean=False))


def _mend_superblock(raw: bytes) -> bytes:
    blocks = [_block(raw), _block(raw[BLOCK_BYTES:])] if len(raw) > BLOCK_BYTES else [_block(raw)]
    bodies = [_MAGIC + block[len(_MAGIC) : -DIGEST_BYTES] for block in blocks]
    return b"".join(body + checksum(body) for body in bodies)


def _superblock_seeds() -> list[bytes]:
    second = replace(_SUPERBLOCK, generation=2, half=1, clean=True, owner="")
    small = encode_superblock(_SUPERBLOCK)[:256]
    return [small, encode_superblock(_SUPERBLOCK) + encode_superblock(second)[:256]]


# --- nof: records and index -----------------------------------------------------------------------

_CHANGES: tuple[tuple[Change, ...], ...] = (
    (Put(Replica(1, "g", "weights/a", 4096, bytes(32), ((0, 1),))), FenceTerm("store", 3)),
    (
        Put(Replica(2, "g", "k", 8192, bytes(32), ((1, 1), (4, 1)))),
        Put(Replica(3, "h", "é", 0, bytes(32), (), quarantined=True)),
        Quarantine(2),
    ),
    (Put(Replica(5, "g", "k", 1, bytes(32), ((9, 1),))), Drop(2), Drop(5)),
)


def _payload(changes: tuple[Change, ...]) -> bytes:
    return b"".join(raw for raw, _ in pack(changes, payload_bytes_max(_GEOMETRY)))


def _parse_records(raw: bytes) -> Catalog:
    catalog = Catalog()
    for change in unpack(memoryview(raw)):
        refuse_misfit(change, _GEOMETRY.data_blocks)
        catalog.apply(change)
    return catalog


def _check_records(value: Catalog, raw: bytes) -> None:
    """A snapshot of the catalog gives the same catalog, and takes the bytes that were counted."""
    again = Catalog()
    for payload, _ in pack(value.changes(), payload_bytes_max(_GEOMETRY)):
        for change in unpack(memoryview(payload)):
            again.apply(change)
    same(again.replicas, value.replicas, "replicas of the snapshot")
    same(again.fences, value.fences, "fences of the snapshot")
    same(again.record_bytes, value.record_bytes, "bytes that a snapshot takes")


_SPLIT = b"\xff\xfe--frame--\xfe\xff"


def _parse_index(raw: bytes) -> Catalog:
    """First byte: how the frames end; the rest: payloads of frames, or blocks as they lie."""
    medium = _medium()
    _clear_index(medium)
    how = raw[0] if raw else 0
    pieces = raw[1:].split(_SPLIT) if len(raw) > 1 else []
    if how & 1:
        _lay(medium, b"".join(pieces))
        count = 0
    else:
        count = _append(medium, pieces)
    superblock = replace(_SUPERBLOCK, sequence=max(0, count - (how >> 2 & 1)), clean=bool(how & 2))
    catalog, log = load_catalog(medium, superblock)
    if log.repair() and not how & 1:
        raise Fault("frames that were whole in both copies were repaired")
    writer = IndexWriter(medium, superblock, catalog=catalog, log=log)
    NofDevice(medium, writer, None).prove_free()
    return catalog


def _clear_index(medium: MemoryMedium) -> None:
    for copy in (0, 1):
        start = _GEOMETRY.index_offset(0, copy)
        medium.data[start : start + _GEOMETRY.half_bytes] = bytes(_GEOMETRY.half_bytes)


def _lay(medium: MemoryMedium, raw: bytes) -> None:
    for copy in (0, 1):
        start = _GEOMETRY.index_offset(0, copy)
        medium.data[start : start + min(len(raw), 65536)] = raw[:65536]


def _append(medium: MemoryMedium, payloads: list[bytes]) -> int:
    log = IndexLog(medium, _GEOMETRY, uuid=UUID, half=0, epoch=_SUPERBLOCK.epoch)
    for payload in payloads:
        payload = payload[: payload_bytes_max(_GEOMETRY)]  # noqa: PLW2901 - cut to what is written
        if not log.fits(len(payload)):
            break
        log.append(payload, 1)
    return log.sequence


def _index_seeds() -> list[bytes]:
    payloads = list(map(_payload, _CHANGES))
    medium = _medium()
    _clear_index(medium)
    _append(medium, payloads[:1])
    start = _GEOMETRY.index_offset(0, 0)
    frame = bytes(medium.data[start : start + 512])
    return [
        b"\0" + payloads[0],
        b"\2" + _SPLIT.join(payloads[:2]),
        b"\4" + _SPLIT.join(payloads),
        b"\1" + frame,
        b"\0",
    ]


def _many_records(n: int) -> bytes:
    return _payload(
        tuple(
            Put(Replica(at, f"g{at % 7}", f"k{at}", 1, bytes(32), ((at % 400, 1),)))
            for at in range(1, n + 1)
        )
    )


TARGETS = (
    Target(
        name="tier-marker",
        floor_bytes=2 * SMALL_BYTES_MAX,
        parse=_parse_marker,
        check=_check_marker,
        refusals=(ConfigError,),
        seeds=_marker_seeds,
        form="json",
        words=(b"format", b"uuid", b"kind", b"owner"),
    ),
    Target(
        name="tier-remembered",
        floor_bytes=2 * SMALL_BYTES_MAX,
        parse=_parse_remembered,
        check=_check_remembered,
        refusals=(ValueError,),
        seeds=lambda: [b"0f" * 16, b"boot-1f\n", b"a/b"],
        form="text",
    ),
    Target(
        name="tier-fence",
        floor_bytes=2 * SMALL_BYTES_MAX,
        parse=_parse_fence,
        check=_check_fence,
        refusals=(TerminalError,),
        seeds=lambda: [b"{}", b'{"store":3}', b'{"a":"7","b":1.5,"c":true}', b"[]"],
        form="json",
        shapes={"holders": lambda n: json.dumps({f"h{at}": at for at in range(n)}).encode()},
    ),
    Target(
        name="tier-long-name",
        floor_bytes=2 * SMALL_BYTES_MAX,
        parse=_parse_long_name,
        check=_check_long_name,
        refusals=(TransientError,),
        seeds=lambda: [b"a" * 300, b"\xff" * 9],
        form="text",
    ),
    Target(
        name="nof-superblock",
        parse=_parse_superblock,
        check=_check_superblock,
        mend=_mend_superblock,
        bytes_max=8192,
        refusals=(ConfigError, TerminalError),
        seeds=_superblock_seeds,
        words=(b"WCTLNOF\0", bytes(16), (4096).to_bytes(8, "little")),
        changes=1500,
        floor_bytes=8 * 1024 * 1024,
    ),
    Target(
        name="nof-records",
        parse=_parse_records,
        check=_check_records,
        refusals=(TerminalError,),
        seeds=lambda: list(map(_payload, _CHANGES)),
        words=tuple(bytes([kind]) for kind in range(1, 6)),
        shapes={"records": _many_records},
    ),
    Target(
        name="nof-index",
        parse=_parse_index,
        check=_check_records,
        refusals=(TerminalError,),
        seeds=_index_seeds,
        words=(_SPLIT, b"nofF", *(bytes([kind]) for kind in range(1, 6))),
        changes=300,
        floor_bytes=16 * 1024 * 1024,
    ),
)
