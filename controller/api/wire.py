"""The local control socket's protocol, version 1.  Layer: api.

`weightctl run` listens on `control.sock` in its state directory.  One connection carries one
request and its answer, as JSON objects of one line each:

    > {"version": 1, "verb": "evict", "params": {"identity": "prod/m/v1@1", "wait": true}}
    < {"progress": {"stage": "evict", "done": 3, "total": 9, "unit": "members"}}
    < {"note": "waits for LeaseLive: ..."}
    < {"result": {"apiVersion": "weightctl/v1", "kind": "Revision", ...}}   or {"error": {...}}

The socket has mode 0600 and both ends check that the other process belongs to the same user or to
root.  Closing the connection ends the waiting, not the operation.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

PROTOCOL_VERSION = 1
SOCKET_NAME = "control.sock"
REQUEST_BYTES_MAX = 1024 * 1024
REPLY_BYTES_MAX = 64 * 1024 * 1024
REQUEST_DEADLINE_S = 10.0
"""How long a connection may take to say what it wants."""

_CREDENTIALS = struct.Struct("3i")


def encode(frame: Mapping[str, Any]) -> bytes:
    """One frame as a line."""
    return json.dumps(frame, separators=(",", ":")).encode("ascii") + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """The frame of a line.  Raises ValueError for anything but one JSON object."""
    try:
        frame = json.loads(line)
    except RecursionError:
        raise ValueError("the frame is nested too deeply") from None
    if not isinstance(frame, dict):
        raise ValueError("a frame is a JSON object")  # noqa: TRY004 - bad input, not a bad call
    return frame


def open_folder(state_dir: str) -> int:
    """A descriptor for `socket_path`; blocking.  Raises OSError when there is no such folder."""
    return os.open(state_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def socket_path(folder: int) -> str:
    """A path of the socket that is short enough for the kernel, however long the folder's is."""
    return f"/proc/self/fd/{folder}/{SOCKET_NAME}"


def is_trusted(peer: socket.socket) -> bool:
    """Whether the process at the other end belongs to this user or to root."""
    raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(raw)
    return uid in (0, os.geteuid())
