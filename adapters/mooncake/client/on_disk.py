"""Reading what a host has on its disk, whatever else there is of the object.  Blocking; a worker.

A reader of Mooncake is given the memory replica where there is one.  The hosts themselves serve
their files to readers by a call of their own, which takes no lease, asks no Master and promotes
nothing: the host reads the file into a buffer and lends it for some seconds, in which the transfer
engine fetches it.  Invariants: what is lent is given back; an answer that is not wholly understood
is an error, of which the release is named when the call itself is another one.
"""

from __future__ import annotations

import hashlib
import importlib
import socket
import struct
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weightctl.adapters.mooncake.client.codes import told
from weightctl.controller.errors import TerminalError, TransientError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_REQUEST = struct.Struct("<BBBBIIII")
"""Magic, version, serialisation, kind, number, function, length, length of an attachment."""
_ANSWER = struct.Struct("<BBBBIII")
"""Magic, version, error, kind, number, length, length of an attachment."""
_MAGIC = 0x15
_GET, _GIVE_BACK = 0xDC8109D6, 0xAA143BB9
"""The host's functions `batch_get_offload_object` and `release_offload_buffer`."""
_GET_FORM = bytes.fromhex("e7a1a681 04 fd84800c8403ff00")
_LENT_FORM = bytes.fromhex("b1ac03fd 04 87fd048404800c04ff0100")
_GIVE_BACK_FORM = bytes.fromhex("7b7e7fec 04 0400")
"""Forms of the arguments and of an answer: a hash and a description of their types."""
_UNKNOWN_CALL = frozenset({4, 11})
"""Errors for arguments of another form, and for a function that is not there."""
_TENANT = b"default\0"
_NAME_BYTES_MAX = 255
_CONNECT_S = 5.0
_ANSWER_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Loan:
    """A host's buffer with the bytes of its file."""

    number: int
    pointer: int
    engine: str
    """Address of the host's transfer engine."""
    lent_ms: int
    """So long the host keeps the buffer, from before it answered."""


class OnDisk:
    """Reads hosts' files by way of `buffer`; in one process with a client of the Master."""

    def __init__(self, setup: Mapping[str, Any], buffer: memoryview, pointer: int) -> None:
        self._setup = setup
        self._buffer = buffer
        self._pointer = pointer
        self._engine: Any = None

    def digest(
        self, endpoint: str, key: str, size_bytes: int, timeout_s: float
    ) -> tuple[bytes, int]:
        """SHA-256 of the file, and the ms from the call on within which it must have been read.

        Raises TransientError, and TerminalError where this host cannot be read so.
        """
        engine, digest = self._ready(), hashlib.sha256()
        with lent(endpoint, key, size_bytes, timeout_s) as loan:
            for offset in range(0, size_bytes, len(self._buffer)):
                wanted = min(len(self._buffer), size_bytes - offset)
                at = loan.pointer + offset
                code = engine.transfer_sync_read(loan.engine, self._pointer, at, wanted)
                if code != 0:
                    raise _failed(endpoint, f"the transfer of its buffer answered {code}")
                digest.update(self._buffer[:wanted])
            return digest.digest(), loan.lent_ms

    def _ready(self) -> Any:  # noqa: ANN401 - the library's own
        """The transfer engine, set up once, under a name of its own."""
        if self._engine is None:
            try:
                engine = importlib.import_module("mooncake.engine").TransferEngine()
            except ImportError as error:
                raise _strange("every host", f"there is no transfer engine: {error}") from error
            name = f"{self._setup['local_hostname']}:{_free_port()}"
            given = (self._setup[one] for one in ("metadata_server", "protocol", "rdma_devices"))
            code = engine.initialize(name, *given) or engine.register_memory(
                self._pointer, len(self._buffer)
            )
            if code != 0:
                raise TransientError("the transfer engine", f"its set-up answered {code}")
            self._engine = engine
        return self._engine


@contextmanager
def lent(endpoint: str, key: str, size_bytes: int, timeout_s: float) -> Iterator[Loan]:
    """Have a host read its file of an object into a buffer, and give that back at the end.

    size_bytes: of the object.  Raises TransientError, TerminalError.
    """
    name = _TENANT + key.encode()
    if len(name) > _NAME_BYTES_MAX:
        raise _failed(endpoint, "the key is too long to be asked for")
    asked = _GET_FORM + bytes([1, len(name)]) + name + b"\1" + struct.pack("<q", size_bytes)
    host, _, port = endpoint.rpartition(":")
    try:
        address, connect_s = (host.strip("[]"), int(port)), min(timeout_s, _CONNECT_S)
        with socket.create_connection(address, connect_s) as line:
            line.settimeout(timeout_s)
            loan = loan_in(endpoint, _call(line, endpoint, _GET, asked))
            try:
                yield loan
            finally:
                with suppress(OSError, TransientError, TerminalError):  # it takes it back itself
                    _call(
                        line,
                        endpoint,
                        _GIVE_BACK,
                        _GIVE_BACK_FORM + struct.pack("<Q", loan.number),
                    )
    except (OSError, ValueError, OverflowError) as error:
        raise _failed(endpoint, f"{type(error).__name__}: {error}") from error


def loan_in(endpoint: str, raw: bytes) -> Loan:
    """What a host has answered for one object.  Raises TransientError, TerminalError."""
    try:
        if not raw.startswith(_LENT_FORM):
            raise _strange(endpoint, f"its answer has another form: {raw[:64].hex()}")
        rest = raw[len(_LENT_FORM) :]
        if rest[0] == 0:
            (code,) = struct.unpack("<xi", rest)
            raise _failed(endpoint, told(code))
        number, count, pointer, length = struct.unpack_from("<xQBQB", rest)
        engine, lent_ms = struct.unpack(f"<{length}sQ", rest[struct.calcsize("<xQBQB") :])
        if (rest[0], count) != (1, 1):
            raise _strange(endpoint, f"its answer is for {count} objects")
        return Loan(number, pointer, engine.decode(), lent_ms)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise _strange(endpoint, f"its answer is cut short or too long: {error}") from error


def _call(line: socket.socket, endpoint: str, function: int, body: bytes) -> bytes:
    line.sendall(_REQUEST.pack(_MAGIC, 0, 0, 0, 0, function, len(body), 0) + body)
    magic, _, error, _, _, length, attached = _ANSWER.unpack(_exactly(line, _ANSWER.size))
    if magic != _MAGIC or attached or length > _ANSWER_BYTES_MAX:
        raise _strange(endpoint, "it is no host of a release that can be asked so")
    answer = _exactly(line, length)
    if error:
        fail = _strange if error in _UNKNOWN_CALL else _failed
        raise fail(endpoint, f"it answered error {error}: {answer[:200]!r}")
    return answer


def _exactly(line: socket.socket, size_bytes: int) -> bytes:
    got = bytearray()
    while len(got) < size_bytes:
        piece = line.recv(size_bytes - len(got))
        if not piece:
            raise ConnectionResetError("the host has ended the connection")
        got += piece
    return bytes(got)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("", 0))
        port: int = one.getsockname()[1]
        return port


def _failed(endpoint: str, why: str) -> TransientError:
    return TransientError(f"the file of the host at {endpoint} could not be read", why, "again")


def _strange(endpoint: str, why: str) -> TerminalError:
    return TerminalError(
        f"the disk of the host at {endpoint} cannot be read beside memory",
        why,
        "see adapters/mooncake/README.md",
    )
