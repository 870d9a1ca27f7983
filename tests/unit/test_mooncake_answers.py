"""How much of an answer of a Mooncake Master is read, and for how long."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import pytest

from tests.fuzz.on_mooncake import _parse_http
from weightctl.adapters.mooncake.master.admin import ANSWER_BYTES_MAX, Admin, Health
from weightctl.adapters.mooncake.master.asking import RECEIVE_BYTES
from weightctl.controller.clock import SystemClock
from weightctl.controller.errors import TransientError


class Ticking(SystemClock):
    """On which a second passes with every look at it."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def monotonic_s(self) -> float:
        self._now_s += 1.0
        return self._now_s


@contextmanager
def dripping(start: bytes) -> Iterator[str]:
    """Address of a server that answers `start` and then more and more, for ever."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.sendall(start)
                    while True:
                        connection.sendall(b"x")

        thread = Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_an_answer_that_is_larger_than_its_question_allows_is_not_read_to_its_end() -> None:
    with pytest.raises(TransientError, match=f"over {ANSWER_BYTES_MAX} bytes"):
        _parse_http(b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (ANSWER_BYTES_MAX + 100))


@pytest.mark.parametrize(
    "start",
    [b"", b"HTTP/1.1 200 OK\r\nA: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n"],
    ids=["status", "headers", "body"],
)
def test_an_answer_that_comes_a_byte_at_a_time_has_one_deadline_for_all_of_it(start: bytes) -> None:
    with dripping(start) as address:
        admin = Admin([address], 60.0, Ticking())
        with pytest.raises(TransientError, match=r"not whole in time|LineTooLong"):
            admin.health()
        admin.close()


@contextmanager
def listing(body: bytes, length: int) -> Iterator[tuple[Admin, Health]]:
    """A Master whose list of all keys is that, and says it has that length."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n".encode()

        def serve() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.recv(1000)
                connection.sendall(head + body)

        thread = Thread(target=serve)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        admin = Admin([address], 60.0, SystemClock())
        yield admin, Health(address=address, role="leader", view="1")
        admin.close()
        thread.join()


def test_of_many_keys_only_those_that_are_asked_for_are_kept() -> None:
    """However long the list of a cache's keys is, and wherever it is cut on its way."""
    cached = b"".join(b"%0*d\n" % (2 * RECEIVE_BYTES // 3, number) for number in range(30))
    body = b"weights/a\n" + cached + b"weights/a,b\n\nweightctl-owner/\xff\rx\nweights/z"
    assert len(body) > ANSWER_BYTES_MAX
    with listing(body, len(body)) as (admin, health):
        found = admin.all_keys(health, ("weights/", "weightctl-"))
    assert found == ["weights/a", "weightctl-owner/\ufffd\rx", "weights/z"]


def test_a_list_of_keys_that_ends_too_early_is_none() -> None:
    """A claim that would have come after it is not "not there"."""
    body = b"weights/a\n"
    refused = pytest.raises(TransientError, match=r"IncompleteRead.*10 bytes of its list")
    with listing(body, len(body) + 1) as (admin, health), refused:
        admin.all_keys(health)


@pytest.mark.parametrize("address", ["a b:1", "a\nb:1", "a\0b:1", "a:99999", "\u00e9" * 80 + ":1"])
def test_an_address_that_is_none_is_a_master_that_does_not_answer(address: str) -> None:
    admin = Admin([address], 60.0, SystemClock())
    with pytest.raises(TransientError):
        admin.health()


def test_an_address_of_the_sixth_version_is_asked_without_its_brackets() -> None:
    admin = Admin(["[::1]:1"], 60.0, SystemClock())
    with pytest.raises(TransientError) as refused:
        admin.health()
    assert "gaierror" not in refused.value.why
