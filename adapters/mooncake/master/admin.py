"""The Master's HTTP interface: the only way to look that takes no lease.  Layer: a tier; blocking.

Runs in worker threads, each request with a deadline and on a connection that is kept.  The standard
library's client is used: measured beside an asynchronous one it was twice as fast, and that one
refuses addresses as long as these.  Invariant: an answer that is not wholly understood, or that
comes from a Master that is not serving, is an error and never an empty answer.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Lock
from typing import TYPE_CHECKING, Any

from msgspec import MsgspecError
from msgspec.json import decode

from weightctl.adapters.mooncake.keys import query_of
from weightctl.adapters.mooncake.master.asking import FAILURES, OK, Line
from weightctl.adapters.mooncake.master.listing import Listing
from weightctl.adapters.mooncake.master.replicas import entries_of
from weightctl.controller.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from weightctl.adapters.mooncake.master.replicas import Entry
    from weightctl.controller.ports import Clock

ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""Of an answer whose size does not follow from what was asked."""
ENTRY_BYTES_MAX = 16 * 1024
"""Of the answer for one key: parsed JSON takes many times its size."""
LEASE_FREE = ("/health", "/batch_query_keys", "/get_all_keys", "/get_segments_detail", "/metrics")
"""Every path that is asked; none takes a lease, promotes or keeps anything alive.

`tests/contract/test_mooncake_behaviour.py` holds a real Master to that.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Who answers, and since which view; equal before and after means nothing changed meanwhile."""

    address: str
    role: str
    view: str
    leader: str = ""
    """RPC address of the leader, where there are several Masters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One memory segment of a host."""

    name: str
    segment_id: str
    client_id: str
    endpoint: str
    status: str
    used_bytes: int
    capacity_bytes: int


class Admin:
    """The serving Master among `addresses`; all calls block.  Raises TransientError."""

    def __init__(
        self,
        addresses: Sequence[str],
        deadline_s: float,
        clock: Clock,
        listing_s: float | None = None,
    ) -> None:
        self._addresses = tuple(addresses)
        self._clock = clock
        self.deadline_s = deadline_s
        """For one answer."""
        self._listing_s = deadline_s if listing_s is None else listing_s
        """For the list of all keys, which grows with what others have there."""
        self._idle: defaultdict[str, SimpleQueue[Line]] = defaultdict(SimpleQueue)
        self._keeping = Lock()
        self._keeps = True
        self._counting = Lock()
        self.asked = dict.fromkeys(LEASE_FREE, 0)
        """How often each path was asked."""

    def health(self) -> Health:
        """The Master that serves.  Raises TransientError when none does."""
        return self._serving_first()

    def _serving_first(self, leader: str = "") -> Health:
        """The one that serves, which is asked first from now on."""
        health = self.serving(self._addresses, leader)
        self._addresses = tuple(dict.fromkeys((health.address, *self._addresses)))
        return health

    def serving(self, addresses: Iterable[str], leader: str = "") -> Health:
        """The first of these that serves, and takes `leader`, where one is named, for the leader.

        Raises TransientError when none does.
        """
        problems = []
        for address in addresses:
            try:
                body = _object(self._get(address, "/health", ANSWER_BYTES_MAX), address)
            except TransientError as error:
                named = error.why.startswith(address)
                problems.append(error.why if named else f"{address}: {error.why}")
                continue
            health = Health(
                address=address,
                role=str(body.get("role")),
                view=_told(body.get("view_version")),
                leader=_told(body.get("leader_address")),
            )
            if body.get("service_ready") is not True:
                problems.append(f"{address}: role {health.role}, not serving")
            elif leader and health.leader != leader:
                problems.append(f"{address} takes {health.leader or 'nobody'} for the leader")
            else:
                return health
        raise _away("; ".join(problems))

    def query(self, health: Health, keys: list[str]) -> Mapping[str, Entry]:
        """What is known of each key: an entry for every one that can be asked for.

        Takes no lease.
        """
        path = f"/batch_query_keys?keys={query_of(keys)}"
        bytes_max = ENTRY_BYTES_MAX * (len(keys) + 1)
        body = self._get(health.address, path, bytes_max)
        try:
            return entries_of(body)
        except ValueError as error:
            raise _away(f"{health.address} answered {body[:200]!r}: {error}") from error

    def all_keys(self, health: Health, begins: tuple[str, ...] = ("",)) -> list[str]:
        """The keys of everybody that begin so and can be asked for: one with a comma cannot."""
        listing, since_s = Listing(begins), self._clock.monotonic_s()
        try:
            self._get(health.address, "/get_all_keys", ANSWER_BYTES_MAX, listing.feed)
        except TransientError as error:
            if not listing.come_bytes:
                raise
            took_s = self._clock.monotonic_s() - since_s
            come = f"{listing.come_bytes} bytes of its list of all keys had come in {took_s:.1f} s"
            raise _away(f"{error.why}; {come}") from error
        return listing.keys()

    def segments(self, health: Health) -> list[Segment]:
        """The memory segments that are mounted."""
        raw = self._get(health.address, "/get_segments_detail", ANSWER_BYTES_MAX)
        body = _object(raw, health.address)
        try:
            return [
                Segment(
                    name=str(row["segment_name"]),
                    segment_id=str(row["segment_id"]),
                    client_id=str(row["client_id"]),
                    endpoint=str(row["te_endpoint"]),
                    status=str(row["status"]),
                    used_bytes=int(row["allocator_used_bytes"]),
                    capacity_bytes=int(row["allocator_capacity_bytes"]),
                )
                for row in body["segments"]
            ]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise _away(f"{health.address}: its list of segments lacks {error}") from error

    def numbers(self, health: Health) -> dict[str, float]:
        """What the Master counts, by name; without what has labels."""
        body = self._get(health.address, "/metrics", ANSWER_BYTES_MAX).decode(errors="replace")
        rows = (line.split() for line in body.splitlines() if line[:1] not in ("#", ""))
        pairs = [row for row in rows if len(row) == 2 and "{" not in row[0]]  # noqa: PLR2004
        with suppress(ValueError):
            return {name: float(value) for name, value in pairs}
        raise _away(f"{health.address}: its metrics are not numbers")

    def open(self) -> None:
        """Keep connections again, after a `close`."""
        self._keeps = True

    def close(self) -> None:
        """Close the kept connections, and from now on each one as soon as its answer has come.

        A look that was given up may end, and even begin, in its thread after its tier was left.
        """
        with self._keeping:
            self._keeps = False
        for idle in list(self._idle.values()):
            with suppress(Empty):
                while True:
                    idle.get_nowait().close()

    def _get(
        self,
        address: str,
        path: str,
        bytes_max: int,
        feed: Callable[[bytes], None] | None = None,
    ) -> bytes:
        with self._counting:
            self.asked[path.partition("?")[0]] += 1  # KeyError for what is not known as harmless
        try:
            with self._connection(address) as connection:
                within_s = self.deadline_s if feed is None else self._listing_s
                status, body = connection.ask("GET", path, bytes_max, feed=feed, within_s=within_s)
                if len(body) > bytes_max:  # its rest is never read: the connection is closed
                    raise _away(f"{address}: its answer has over {bytes_max} bytes")
        except FAILURES as error:
            raise _away(f"{address}: {type(error).__name__}: {error}") from error
        if status != OK:
            raise _away(f"{address} answered {status}: {body[:200]!r}")
        return body

    @contextmanager
    def _connection(self, address: str) -> Iterator[Line]:
        """A kept connection that is not known to be closed, or a new one; kept when it worked."""
        try:
            connection = self._idle[address].get_nowait()
        except Empty:
            connection = Line(address, self.deadline_s, self._clock)
        if connection.is_stale():
            connection.close()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        with self._keeping:
            if self._keeps:
                self._idle[address].put(connection)
                return
        connection.close()


def _object(body: bytes, address: str) -> dict[str, Any]:
    try:
        value = decode(body)
    except (MsgspecError, RecursionError) as error:
        raise _away(f"{address}: its answer is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise _away(f"{address}: its answer is no object")
    return value


def _told(value: object) -> str:
    return "" if value is None else str(value)


def _away(why: str) -> TransientError:
    return TransientError(
        "the Mooncake Master gave no answer that can be used",
        why,
        "start the Master, or mend the options `master` and `admin_port`, or `admin`; nothing is"
        " done until then",
    )
