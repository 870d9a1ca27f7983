"""The kernel's FUSE protocol, as far as a small file system in memory needs it.

Owns the layout of requests and answers (version 7.31 of the protocol) and the mounting.  Nothing
here knows what is stored.  It speaks to /dev/fuse itself, so no library or helper program is needed
beside the kernel.
"""

import os
import stat
import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from tests.support.mounts import mount

MAJOR, MINOR = 7, 31
WRITE_BYTES_MAX = 1 << 20
REQUEST_BYTES_MAX = WRITE_BYTES_MAX + (1 << 16)

IN_HEADER = struct.Struct("<IIQQIIIHH")
OUT_HEADER = struct.Struct("<IiQ")
INIT_IN = struct.Struct("<IIII")
INIT_OUT = struct.Struct("<IIIIHHIIHHI28x")
ATTR = struct.Struct("<QQQQQQIIIIIIIIII")
ENTRY = struct.Struct("<QQQQII")
ATTR_OUT = struct.Struct("<QII")
OPEN_OUT = struct.Struct("<QIi")
SETATTR_IN = struct.Struct("<IIQQQQQQIIIIIIII")
CREATE_IN = struct.Struct("<IIII")
MKDIR_IN = struct.Struct("<II")
MKNOD_IN = struct.Struct("<IIII")
READ_IN = struct.Struct("<QQIIQII")
WRITE_IN = READ_IN
WRITE_OUT = struct.Struct("<II")
FALLOCATE_IN = struct.Struct("<QQQII")
STATFS_OUT = struct.Struct("<QQQQQIII28x")
DIRENT = struct.Struct("<QQII")
U64 = struct.Struct("<Q")
RENAME2_IN = struct.Struct("<QII")

KEEP_CACHE = 1 << 1
_BIG_WRITES, _PARALLEL_LOOKUPS, _MAX_PAGES = 1 << 5, 1 << 18, 1 << 22
SET_MODE, SET_UID, SET_GID, SET_SIZE = 1, 2, 4, 8


class Op(IntEnum):
    """What the kernel asks for; others are answered with ENOSYS, which it takes as `never`."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    FALLOCATE = 43
    RENAME2 = 45


UNANSWERED = frozenset({Op.FORGET, Op.BATCH_FORGET, Op.INTERRUPT})


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `body` is what follows the header."""

    op: int
    unique: int
    node: int
    body: memoryview

    def names(self, start: int) -> list[str]:
        """The zero-terminated names from that byte of the body on."""
        parts = bytes(self.body[start:]).split(b"\0")[:-1]
        return [part.decode("utf-8", "surrogateescape") for part in parts]


def parse(raw: memoryview) -> Request:
    """Read one request as it comes from the device."""
    _, op, unique, node, *_ = IN_HEADER.unpack_from(raw)
    return Request(op, unique, node, raw[IN_HEADER.size :])


def answer(unique: int, body: bytes = b"", error: int = 0) -> bytes:
    """One answer; a positive `error` is an errno."""
    return OUT_HEADER.pack(OUT_HEADER.size + len(body), -error, unique) + body


def welcome(body: memoryview) -> bytes:
    """The answer to INIT: large requests, no locks of our own, so that the kernel keeps them."""
    _, _, readahead, offered = INIT_IN.unpack_from(body)
    flags = offered & (_BIG_WRITES | _PARALLEL_LOOKUPS | _MAX_PAGES)
    pages = WRITE_BYTES_MAX // 4096
    return INIT_OUT.pack(MAJOR, MINOR, readahead, flags, 16, 12, WRITE_BYTES_MAX, 1, pages, 0, 0)


def dirents(names: list[tuple[str, int, int]], offset: int, size_bytes: int) -> bytes:
    """As many (name, inode, mode) from `offset` on as fit."""
    found = bytearray()
    for position, (name, inode, mode) in enumerate(names[offset:], offset + 1):
        raw = name.encode("utf-8", "surrogateescape")
        entry = DIRENT.pack(inode, position, len(raw), stat.S_IFMT(mode) >> 12) + raw
        entry += bytes(-len(entry) % 8)
        if len(found) + len(entry) > size_bytes:
            break
        found += entry
    return bytes(found)


def mount_over(folder: Path) -> int:
    """Mount over `folder`; the descriptor that serves it.  Raises OSError."""
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
    try:
        mount("weightctl-lab", folder, "fuse.weightctl-lab", options)
    except OSError:
        os.close(fd)
        raise
    return fd
