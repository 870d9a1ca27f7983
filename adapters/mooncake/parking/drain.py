"""Drain jobs of the Master, over its HTTP interface.  Layer: a tier; blocking.

A segment that is being drained takes nothing new, whoever asks.  The Master moves what it may away
from it, and counts what it may not: what is hard-pinned, leased, or not yet ended.  It counts every
object of everybody, also those under keys that cannot be asked for, so that count proves what is on
the segment.  Invariant: an answer that is not wholly understood is an error.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import TypeVar
from urllib.parse import quote

from msgspec import MsgspecError, Struct, field
from msgspec.json import decode, encode

from weightctl.controller.errors import TransientError

T = TypeVar("T", bound=Struct)

PATH = "/api/v1/drain_jobs"
_OK, _NOT_FOUND = 200, 404
_UNKNOWN_JOB = b"-1402"
_ANSWER_BYTES_MAX = 1024 * 1024
_AT_A_TIME = 8
"""Objects that the Master may move away at a time."""


class Job(Struct, frozen=True):
    """What the Master says of a job; counts of objects."""

    status: str = field(name="status_name")
    failed: int = field(name="failed_units")
    blocked: int = field(name="blocked_units")
    """On the segment at the last count, and not moved: pinned, leased, unfinished, or no target."""
    active: int = field(name="active_units")
    """Being moved."""
    counted_at_ms: int = field(name="last_updated_at_ms_epoch")


class _Begun(Struct):
    job_id: str


@dataclass(frozen=True, slots=True)
class Drains:
    """The drain jobs of one serving Master.  Raises TransientError."""

    address: str
    deadline_s: float

    def can(self) -> bool:
        """Whether this Master knows such jobs."""
        _, body = self._ask("GET", f"{PATH}/query?job_id=0-0", b"")
        return _UNKNOWN_JOB in body

    def begin(self, segment: str) -> str:
        """Drain a segment, which must be OK; the job's id."""
        wanted = {"segments": [segment], "target_segments": [], "max_concurrency": _AT_A_TIME}
        status, body = self._ask("POST", PATH, encode(wanted))
        return self._read(status, body, _Begun).job_id

    def look(self, job_id: str) -> Job | None:
        """A job; None when this Master does not know it."""
        status, body = self._ask("GET", f"{PATH}/query?job_id={quote(job_id)}", b"")
        return None if status == _NOT_FOUND else self._read(status, body, Job)

    def cancel(self, job_id: str) -> None:
        """End a job in which nothing is being moved; its segment is OK again."""
        self._ask("POST", f"{PATH}/cancel?job_id={quote(job_id)}", b"")

    def _read(self, status: int, body: bytes, form: type[T]) -> T:
        if status != _OK:
            raise self._away(f"it answered {status}: {body[:200]!r}")
        try:
            return decode(body, type=form)
        except (MsgspecError, RecursionError) as error:
            raise self._away(f"its answer is not understood: {error}") from error

    def _ask(self, method: str, path: str, content: bytes) -> tuple[int, bytes]:
        host, _, port = self.address.rpartition(":")
        try:
            with closing(
                HTTPConnection(host.strip("[]"), int(port), timeout=self.deadline_s)
            ) as connection:
                headers = {"Content-Type": "application/json"}
                connection.request(method, path, content, headers)
                response = connection.getresponse()
                return response.status, response.read(_ANSWER_BYTES_MAX)
        except (OSError, HTTPException, ValueError, OverflowError) as error:
            raise self._away(f"{type(error).__name__}: {error}") from error

    def _away(self, why: str) -> TransientError:
        return TransientError(
            f"the Mooncake Master at {self.address} gave no answer about a drain",
            why,
            "it is asked again",
        )
