"""One HTTP request at a time, with one deadline for all of its answer.  Layer: a tier; blocking.

The standard library bounds every single receive, so that whoever answers a byte now and then would
hold a thread for ever.  Here a receive has what is left of the request's time.  Invariant: an ask
ends within its deadline, apart from resolving a name; what goes wrong is one of `FAILURES`.
"""

from __future__ import annotations

import socket
from http.client import HTTPConnection, HTTPException, IncompleteRead
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from _typeshed import WriteableBuffer

    from weightctl.controller.ports import Clock

RECEIVE_BYTES = 1024 * 1024
"""Room for a whole answer, so that the Master need not wait for us amid one; measured."""
OK = 200
FAILURES = (OSError, HTTPException, ValueError, OverflowError)
"""The last two: an address that is none, and the length of a chunk that the library believes."""


class _Deadline:
    """When the answer that is asked for has to be whole."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self.seconds = seconds
        self._clock = clock
        self._until_s = 0.0

    def begin(self, seconds: float) -> None:
        self._until_s = self._clock.monotonic_s() + seconds

    def left_s(self) -> float:
        """Raises TimeoutError."""
        left_s = self._until_s - self._clock.monotonic_s()
        if left_s <= 0:
            raise TimeoutError("the answer was not whole in time")
        return left_s


class _Socket(socket.socket):
    """Receives until a deadline, however slowly the bytes come."""

    deadline: _Deadline

    def recv_into(self, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> int:
        """As socket.socket.  Raises TimeoutError."""
        self.settimeout(self.deadline.left_s())
        return super().recv_into(buffer, nbytes, flags)


class Line(HTTPConnection):
    """A connection to `host:port`, opened when it is first needed; after a failure to be closed."""

    def __init__(self, address: str, deadline_s: float, clock: Clock) -> None:
        super().__init__(address, timeout=deadline_s)
        self._deadline = _Deadline(deadline_s, clock)

    def connect(self) -> None:
        """As HTTPConnection."""
        super().connect()
        timed = _Socket(fileno=self.sock.detach())
        timed.deadline = self._deadline
        timed.settimeout(self._deadline.seconds)
        timed.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        self.sock = timed

    def ask(
        self,
        method: str,
        path: str,
        bytes_max: int,
        *,
        body: str | None = None,
        headers: Mapping[str, str] | None = None,
        feed: Callable[[bytes], None] | None = None,
        within_s: float | None = None,
    ) -> tuple[int, bytes]:
        """Status and body of the answer; of a longer body `bytes_max` + 1 bytes.

        The body of a good answer is given to `feed` piece by piece, where there is one, however
        long it is.  All of it has to come `within_s`, the deadline of this line without it.
        """
        self._deadline.begin(self._deadline.seconds if within_s is None else within_s)
        if self.sock is not None:
            self.sock.settimeout(self._deadline.seconds)
        self.request(method, path, body, headers or {})
        response = self.getresponse()
        if feed is None or response.status != OK:
            return response.status, response.read(bytes_max + 1)
        while piece := response.read(RECEIVE_BYTES):
            feed(piece)
        if response.length or (response.length is None and not response.chunked):
            raise IncompleteRead(b"", response.length)  # which the library tells of a whole read
        return response.status, b""

    def is_stale(self) -> bool:
        """Whether the other side has closed it: readable without a request means that."""
        if self.sock is None:
            return False
        self.sock.settimeout(0)
        try:
            return self.sock.recv(1) is not None
        except BlockingIOError:
            return False
        except OSError:
            return True
