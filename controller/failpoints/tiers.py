"""A tier whose every call passes two failpoints.  Layer: failpoints.

`tier.NAME.CALL.before` is reached before the call, `.after` when it has given its answer and nobody
has heard it yet; `tier.NAME.piece` before each piece of a store or a verify moves, because that is
when its bandwidth is charged.  The wrapped tier does its work the way it always does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from weightctl.controller.errors import (
    BusyError,
    CapacityError,
    FencedError,
    IntegrityError,
    ReconcileError,
    TerminalError,
    ThrottledError,
    TransientError,
    UnknownOutcomeError,
)
from weightctl.controller.runtime.forwarding import ForwardingTier

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weightctl.controller.failpoints.points import Failpoints
    from weightctl.controller.ports import Limiter, Tier

T = TypeVar("T")

_WHAT = "a failpoint"


def error_of(word: str) -> ReconcileError:
    """The error of a class by the word that names it in `points.TIER_ERRORS`."""
    match word:
        case "throttled":
            return ThrottledError(1.0, _WHAT)
        case "busy":
            return BusyError(None, _WHAT)
        case "capacity":
            return CapacityError(1, 0, _WHAT)
    kinds: dict[str, type[ReconcileError]] = {
        "transient": TransientError,
        "integrity": IntegrityError,
        "terminal": TerminalError,
        "fenced": FencedError,
        "unknown": UnknownOutcomeError,
    }
    return kinds[word](_WHAT)


class FailpointTier(ForwardingTier):
    """`ports.Tier` over another tier."""

    def __init__(self, inner: Tier, points: Failpoints) -> None:
        super().__init__(inner)
        self._points = points
        self._name = f"tier.{inner.profile.name}"

    def _reach(self, place: str) -> None:
        failure = self._points.reach(f"{self._name}.{place}")
        if failure:
            raise error_of(failure)

    async def around(self, call: str, run: Callable[[], Awaitable[T]]) -> T:
        """Pass the failpoint before it and the one after it; a report has none."""
        if call == "report":
            return await run()
        self._reach(f"{call}.before")
        answer = await run()
        self._reach(f"{call}.after")
        return answer

    def limited(self, limit: Limiter | None) -> Limiter:
        """Each piece that is charged is a failpoint."""
        return _Pieces(self._reach, limit)


class _Pieces:
    """A bandwidth that tells when a piece is about to move."""

    def __init__(self, reach: Callable[[str], None], limit: Limiter | None) -> None:
        self._reach = reach
        self._limit = limit

    async def charge(self, size_bytes: int) -> None:
        """Wait for the wrapped bandwidth, where there is one."""
        self._reach("piece")
        if self._limit is not None:
            await self._limit.charge(size_bytes)
