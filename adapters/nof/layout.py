"""Where things lie on the device: superblock slots, index halves, data.  Layer: nof tier.

Owns the fixed-size header of the format and its checksum.  Invariant: both superblock slots hold
the same content at rest; they are written one after the other with a flush between, so that any
single torn or rotten slot leaves the other one right, whichever of the two it is.

    0        superblock, slot 0            index + 0h   half 0, first copy
    512 KiB  superblock, slot 1            index + 1h   half 0, second copy
    1 MiB    index (4 * h bytes)           index + 2h   half 1, first copy
    data     replicas, 4 KiB blocks        index + 3h   half 1, second copy
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from hashlib import blake2b

from weightctl.controller.errors import ConfigError

BLOCK_BYTES = 4096
FORMAT_VERSION = 1
SLOT_OFFSETS = (0, 512 * 1024)
HEADER_BYTES = 1024 * 1024
"""Everything before the index.  A device is blank when all of it is zero."""
DEVICE_BYTES_MIN = 4 * 1024 * 1024
DIGEST_BYTES = 16

_MAGIC = b"WCTLNOF\x00"
_HALF_BYTES_MIN = 256 * 1024
_HALF_BYTES_MAX = 256 * 1024 * 1024
_HALF_SHARE = 64
"""One half's copy takes 1/64 of the device: room for a replica of every 8 KiB of data."""
_FIELDS = struct.Struct("<8sHHIQ16sQQQQQQQQBB")
_TEXT_BYTES_MAX = 255


def round_up(size_bytes: int) -> int:
    """`size_bytes` up to whole blocks."""
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES


def aligned_buffer(size_bytes: int) -> memoryview:
    """Zeroed memory that starts at a page, fit for direct I/O; `size_bytes` is rounded up."""
    return memoryview(mmap.mmap(-1, max(round_up(size_bytes), BLOCK_BYTES)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Byte offsets and sizes of the regions; all multiples of `BLOCK_BYTES`."""

    total_bytes: int
    half_bytes: int
    """Size of one copy of one index half."""

    @classmethod
    def of_size(cls, total_bytes: int) -> Geometry:
        """The geometry of a new device of that size.  Raises ConfigError when it is too small."""
        total = total_bytes // BLOCK_BYTES * BLOCK_BYTES
        if total < DEVICE_BYTES_MIN:
            raise ConfigError(
                f"a device of {total_bytes} bytes cannot be formatted",
                f"the format needs at least {DEVICE_BYTES_MIN} bytes",
                "give a larger device, or a larger size_bytes",
            )
        half = min(max(total // _HALF_SHARE, _HALF_BYTES_MIN), _HALF_BYTES_MAX)
        return cls(total_bytes=total, half_bytes=half // BLOCK_BYTES * BLOCK_BYTES)

    @property
    def data_offset(self) -> int:
        """Where block 0 of the data region lies."""
        return HEADER_BYTES + 4 * self.half_bytes

    @property
    def data_blocks(self) -> int:
        """Blocks of the data region."""
        return (self.total_bytes - self.data_offset) // BLOCK_BYTES

    @property
    def fits(self) -> bool:
        """Whether the regions are whole blocks of a size that is given to them, one by one."""
        whole = self.total_bytes % BLOCK_BYTES == self.half_bytes % BLOCK_BYTES == 0
        known = _HALF_BYTES_MIN <= self.half_bytes <= _HALF_BYTES_MAX
        return whole and known and self.data_offset < self.total_bytes

    def index_offset(self, half: int, copy: int) -> int:
        """Where that copy of that index half begins."""
        return HEADER_BYTES + (2 * half + copy) * self.half_bytes

    def block_offset(self, block: int) -> int:
        """Where that block of the data region begins."""
        return self.data_offset + block * BLOCK_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who writes to the device: host, its boot, process, and since when (wall milliseconds)."""

    host: str
    boot_id: str
    pid: int
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Superblock:
    """The root of everything on the device."""

    uuid: bytes
    generation: int
    geometry: Geometry
    half: int
    """The index half that is in force."""
    epoch: int
    """Names this use of the half; no two uses of the device share one."""
    claim: int
    """Grows with each opening for writing; a writer whose claim is no longer here is fenced."""
    sequence: int
    """At least this many frames of the epoch are durable; exactly this many when `clean`."""
    clean: bool
    """The holder closed the device in order; nobody writes to it now."""
    holder: Holder
    owner: str = ""
    """The store that it belongs to; empty while none has claimed it."""


def checksum(*parts: bytes | memoryview, key: bytes = b"") -> bytes:
    """Keyed 16-byte digest; the key is the device's uuid, so no foreign bytes can pass."""
    state = blake2b(digest_size=DIGEST_BYTES, key=key, person=b"weightctl-nof")
    for part in parts:
        state.update(part)
    return state.digest()


def encode_superblock(value: Superblock) -> bytes:
    """One block: fields, texts, zeros, and a digest over all of that at its end."""
    fields = _FIELDS.pack(
        _MAGIC,
        FORMAT_VERSION,
        0,
        BLOCK_BYTES,
        value.generation,
        value.uuid,
        value.geometry.total_bytes,
        value.geometry.half_bytes,
        value.epoch,
        value.claim,
        value.sequence,
        value.holder.since_ms,
        value.holder.pid,
        value.geometry.data_offset,
        value.half,
        value.clean,
    )
    texts = b"".join(map(_text, (value.holder.host, value.holder.boot_id, value.owner)))
    body = (fields + texts).ljust(BLOCK_BYTES - DIGEST_BYTES, b"\0")
    return body + checksum(body)


def _text(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")[:_TEXT_BYTES_MAX]
    return bytes([len(raw)]) + raw


def decode_superblock(block: bytes) -> Superblock | None:
    """The superblock of this version in `block`, or None where there is no sound one."""
    if slot_version(block) != FORMAT_VERSION:
        return None
    if checksum(block[:-DIGEST_BYTES]) != block[-DIGEST_BYTES:]:
        return None
    (_, _, _, block_bytes, generation, uuid, total, half_bytes, epoch, claim, sequence, since_ms,
     pid, data_offset, half, clean) = _FIELDS.unpack_from(block)  # fmt: skip
    texts: list[str] = []
    position = _FIELDS.size
    for _ in range(3):  # one that was written before devices had owners ends in an empty one
        size = block[position]
        raw = block[position + 1 : position + 1 + size]
        texts.append(raw.decode("utf-8", "surrogateescape"))
        position += 1 + size
    geometry = Geometry(total_bytes=total, half_bytes=half_bytes)
    known = (block_bytes, data_offset) == (BLOCK_BYTES, geometry.data_offset) and half <= 1
    if not known or not geometry.fits:
        return None  # a right checksum proves no sense: it is damage, and no reason to stop
    return Superblock(
        uuid=uuid,
        generation=generation,
        geometry=geometry,
        half=half,
        epoch=epoch,
        claim=claim,
        sequence=sequence,
        clean=bool(clean),
        holder=Holder(host=texts[0], boot_id=texts[1], pid=pid, since_ms=since_ms),
        owner=texts[2],
    )


def slot_version(block: bytes) -> int | None:
    """The format version that a slot names, sound or not; None without our magic."""
    return int.from_bytes(block[8:10], "little") if block[:8] == _MAGIC else None
