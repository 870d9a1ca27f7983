"""The call by which a host lends its file: what is asked, understood, and given back."""

import ctypes
import socket
import struct
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from types import SimpleNamespace

import pytest

from weightctl.adapters.mooncake.client.on_disk import Loan, OnDisk, lent, loan_in
from weightctl.controller.errors import TerminalError, TransientError

WAIT_S = 60.0
# As a reader and a host of release 0.3.13.post1 have sent it to each other.
ASKED = bytes.fromhex(
    "15000000 00000000 d60981dc 2a000000 00000000"
    "e7a1a681 04 fd84800c8403ff00 01 12 64656661756c74 00 776569676874732f6b31"
    "01 a086010000000000"
)
GIVEN_BACK = bytes.fromhex(
    "15000000 00000000 b93b14aa 0f000000 00000000 7b7e7fec 04 0400 0100000000000000"
)
FORM = "b1ac03fd 04 87fd048404800c04ff0100"
LENT = bytes.fromhex(
    FORM + "01 0100000000000000 01 00f0ff23e57f0000"
    "0f 3132372e302e302e313a3135363137 8813000000000000"
)
TAKEN_BACK = bytes.fromhex("d9ffc813 04 0b0001")


def answer(body: bytes, error: int = 0) -> bytes:
    return struct.pack("<BBBBIII", 0x15, 0, error, 0, 0, len(body), 0) + body


@contextmanager
def host(*answers: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A host that gives these answers in turn; its address, and what it was asked."""
    asked: list[bytes] = []

    def serve() -> None:
        line, _ = server.accept()
        with line, line.makefile("rb") as read:
            for one in answers:
                head = read.read(20)
                if len(head) < 20:
                    return
                asked.append(head + read.read(int.from_bytes(head[12:16], "little")))
                line.sendall(one)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}", asked
        finally:
            with socket.create_connection(server.getsockname()):  # whom nobody has asked ends, too
                thread.join()


def test_a_file_is_asked_for_as_a_reader_does_and_given_back() -> None:
    with host(answer(LENT), answer(TAKEN_BACK)) as (address, asked):
        with lent(address, "weights/k1", 100_000, WAIT_S) as loan:
            assert loan == Loan(1, 0x7FE523FFF000, "127.0.0.1:15617", 5000)
            assert asked == [ASKED]
        assert asked == [ASKED, GIVEN_BACK]


def test_what_is_lent_is_given_back_when_reading_it_fails() -> None:
    with (
        host(answer(LENT), answer(TAKEN_BACK)) as (address, asked),
        pytest.raises(ZeroDivisionError),
        lent(address, "weights/k1", 100_000, WAIT_S),
    ):
        raise ZeroDivisionError
    assert asked == [ASKED, GIVEN_BACK]


def test_a_host_that_does_not_take_it_back_does_it_by_itself() -> None:
    with host(answer(LENT)) as (address, _), lent(address, "weights/k1", 100_000, WAIT_S):
        pass


@pytest.mark.parametrize(
    "raw, error, told",
    [
        (bytes.fromhex(FORM + "00 b3fbffff"), TransientError, "-1101 FILE_OPEN_FAIL"),
        (b"", TerminalError, "another form"),
        (b"\0" + LENT[1:], TerminalError, "another form"),
        (bytes.fromhex(FORM), TerminalError, "cut short"),
        (LENT[:-1], TerminalError, "cut short"),
        (LENT + b"\0", TerminalError, "too long"),
        (bytes.fromhex(FORM + "02") + LENT[17:], TerminalError, "for 1 objects"),
        (LENT[:25] + b"\2" + LENT[26:], TerminalError, "for 2 objects"),
    ],
)
def test_an_answer_that_is_not_wholly_understood_is_an_error(
    raw: bytes, error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        loan_in("10.0.0.1:1", raw)


@pytest.mark.parametrize(
    "answers, error, told",
    [
        ([answer(b"no such function", 11)], TerminalError, "error 11"),
        ([answer(b"other arguments", 4)], TerminalError, "error 4"),
        ([answer(b"too few bytes", 10)], TransientError, "error 10"),
        ([b"HTTP/1.1 400 Bad Request\r\n"], TerminalError, "no host of a release"),
        ([answer(LENT)[:30]], TransientError, "ended the connection"),
        ([struct.pack("<BBBBIII", 0x15, 0, 0, 0, 0, 1 << 30, 0)], TerminalError, "no host"),
    ],
)
def test_a_host_that_cannot_be_asked_so_is_told_from_one_that_fails(
    answers: Sequence[bytes], error: type[Exception], told: str
) -> None:
    with (
        host(*answers) as (address, _),
        pytest.raises(error, match=told),
        lent(address, "weights/k1", 100_000, WAIT_S),
    ):
        pass


@pytest.mark.parametrize("address", ["127.0.0.1:1", "", "10.0.0.1", "127.0.0.1:port", "h:99999"])
def test_nobody_at_the_address_is_a_passing_failure(address: str) -> None:
    with pytest.raises(TransientError), lent(address, "k", 1, WAIT_S):
        pass


def test_a_key_that_does_not_fit_the_call_is_not_asked_for() -> None:
    with pytest.raises(TransientError, match="too long"), lent("127.0.0.1:1", "k" * 248, 1, WAIT_S):
        pass


class TransferEngine:
    """Reads memory of this process."""

    set_up: tuple[str, ...] = ()
    code = 0

    def initialize(self, *given: str) -> int:
        TransferEngine.set_up = given
        return 0

    def register_memory(self, pointer: int, size_bytes: int) -> int:
        return 0

    def transfer_sync_read(self, engine: str, target: int, source: int, size_bytes: int) -> int:
        assert engine == "10.0.0.1:7"
        ctypes.memmove(target, source, size_bytes)
        return self.code


def lending(content: bytes) -> tuple[ctypes.Array[ctypes.c_char], bytes]:
    """A host's buffer, and its answer."""
    held = ctypes.create_string_buffer(content, len(content))
    body = bytes.fromhex(FORM) + struct.pack("<BQBQB", 1, 1, 1, ctypes.addressof(held), 10)
    return held, answer(body + b"10.0.0.1:7" + struct.pack("<Q", 5000))


def reader() -> OnDisk:
    buffer = memoryview(bytearray(7))
    pointer = ctypes.addressof((ctypes.c_char * len(buffer)).from_buffer(buffer))
    setup = {"metadata_server": "M", "protocol": "tcp", "rdma_devices": "", "local_hostname": "h"}
    return OnDisk(setup, buffer, pointer)


def test_a_file_larger_than_the_buffer_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        sys.modules, "mooncake.engine", SimpleNamespace(TransferEngine=TransferEngine)
    )
    content = bytes(range(100))
    _held, lends = lending(content)
    with host(lends, answer(TAKEN_BACK)) as (address, asked):
        found = reader().digest(address, "k", len(content), WAIT_S)
    assert found == (sha256(content).digest(), 5000)
    assert len(asked) == 2
    name, *given = TransferEngine.set_up
    assert name.startswith("h:")
    assert given == ["M", "tcp", ""]


def test_a_transfer_that_fails_is_a_passing_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        sys.modules, "mooncake.engine", SimpleNamespace(TransferEngine=TransferEngine)
    )
    monkeypatch.setattr(TransferEngine, "code", -1)
    _held, lends = lending(b"content")
    with (
        host(lends, answer(TAKEN_BACK)) as (address, asked),
        pytest.raises(TransientError, match="answered -1"),
    ):
        reader().digest(address, "k", 7, WAIT_S)
    assert len(asked) == 2, "it is given back"


def test_without_a_transfer_engine_no_host_can_be_read_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mooncake.engine", None)
    with pytest.raises(TerminalError, match="no transfer engine"):
        reader().digest("127.0.0.1:1", "k", 7, WAIT_S)
