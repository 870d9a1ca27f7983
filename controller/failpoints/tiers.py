"""A tier whose every call passes two failpoints.  Layer: failpoints.

`tier.NAME.CALL.before` is reached before the call, `.after` when it has given its answer and nobody
has heard it yet; `tier.NAME.piece` before each piece of a store or a verify moves, because that is
when its bandwidth is charged.  The wrapped tier does its work the way it always does.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Self, cast

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

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from weightctl.controller.core.observation import Member, Members, TierObservation
    from weightctl.controller.core.tiers import TierCapacity, TierProfile
    from weightctl.controller.failpoints.points import Failpoints
    from weightctl.controller.ports import (
        DropItem,
        Fence,
        InventoryItem,
        Limiter,
        MediumReport,
        Outcome,
        RangedReader,
        Reporting,
        StoreItem,
        Tier,
    )

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


class FailpointTier:
    """`ports.Tier` over another tier."""

    def __init__(self, inner: Tier, points: Failpoints) -> None:
        self._inner = inner
        self._points = points
        self._name = f"tier.{inner.profile.name}"

    @property
    def profile(self) -> TierProfile:
        """As the wrapped tier's."""
        return self._inner.profile

    def remark(self) -> str:
        """As the wrapped tier's (`ports.Remarking`)."""
        remark = getattr(self._inner, "remark", None)
        return str(remark()) if callable(remark) else ""

    @property
    def numbers(self) -> Sequence[str]:
        """As the wrapped tier's (`ports.Reporting`)."""
        return tuple(getattr(self._inner, "numbers", ()))

    async def report(self) -> MediumReport:
        """As the wrapped tier's."""
        return await cast("Reporting", self._inner).report()

    async def __aenter__(self) -> Self:
        """Ready the wrapped tier."""
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Release the wrapped tier."""
        await self._inner.__aexit__(*exc_info)

    def _reach(self, place: str) -> None:
        failure = self._points.reach(f"{self._name}.{place}")
        if failure:
            raise error_of(failure)

    @contextmanager
    def _around(self, call: str) -> Iterator[None]:
        self._reach(f"{call}.before")
        yield
        self._reach(f"{call}.after")

    async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
        """As the port."""
        with self._around("observe"):
            return await self._inner.observe(members, detail=detail)

    async def store(
        self, batch: Sequence[StoreItem], fence: Fence, *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """As the port."""
        with self._around("store"):
            return await self._inner.store(batch, fence, limit=_Pieces(self._reach, limit))

    async def verify(
        self, batch: Sequence[Member], *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """As the port."""
        with self._around("verify"):
            return await self._inner.verify(batch, limit=_Pieces(self._reach, limit))

    async def drop(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """As the port."""
        with self._around("drop"):
            return await self._inner.drop(batch, fence)

    async def quarantine(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """As the port."""
        with self._around("quarantine"):
            return await self._inner.quarantine(batch, fence)

    def open(self, member: Member) -> AbstractAsyncContextManager[RangedReader]:
        """As the port."""
        return self._open(member)

    @asynccontextmanager
    async def _open(self, member: Member) -> AsyncIterator[RangedReader]:
        self._reach("open.before")
        async with self._inner.open(member) as reader:
            self._reach("open.after")
            yield reader

    async def inventory(self, group_id: str | None = None) -> Mapping[str, Sequence[InventoryItem]]:
        """As the port."""
        with self._around("inventory"):
            return await self._inner.inventory(group_id)

    async def capacity(self) -> TierCapacity:
        """As the port."""
        with self._around("capacity"):
            return await self._inner.capacity()

    def map_path(self, member: Member) -> str | None:
        """As the port."""
        return self._inner.map_path(member)


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
