"""The Tier port over another tier, for wrappers.  Layer: runtime.

The one place that states every call of the port once more.  A wrapper says what is different: what
happens around each call, around each batch, to each reader and bandwidth, or in one method alone;
everything else reaches the wrapped tier as it was asked.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from weightctl.controller.core.observation import Member, Members, TierObservation
    from weightctl.controller.core.tiers import TierCapacity, TierProfile
    from weightctl.controller.ports import (
        Check,
        Checking,
        Doubting,
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

T = TypeVar("T")
Item = TypeVar("Item")


class ForwardingTier:
    """`ports.Tier`, and what a tier may have beside it, over `inner`."""

    def __init__(self, inner: Tier) -> None:
        self._inner = inner

    # --- what a wrapper changes -------------------------------------------------------------------

    async def around(self, call: str, run: Callable[[], Awaitable[T]]) -> T:
        """Every call that waits, by the name of its method; `open` is the opening of a replica."""
        del call
        return await run()

    async def around_batch(
        self,
        call: str,
        batch: Sequence[Item],
        run: Callable[[Sequence[Item]], Awaitable[Sequence[Outcome]]],
    ) -> Sequence[Outcome]:
        """Every batch, which `run` carries out, wholly or in part; by itself one of the calls."""
        return await self.around(call, partial(run, batch))

    def reading(self, reader: RangedReader) -> RangedReader:
        """Every reader that was opened."""
        return reader

    def limited(self, limit: Limiter | None) -> Limiter | None:
        """Every bandwidth that is handed on."""
        return limit

    # --- the port ---------------------------------------------------------------------------------

    @property
    def profile(self) -> TierProfile:
        """As the port."""
        return self._inner.profile

    async def __aenter__(self) -> Self:
        """Ready the wrapped tier."""
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Release the wrapped tier."""
        await self._inner.__aexit__(*exc_info)

    async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
        """As the port."""
        return await self.around("observe", lambda: self._inner.observe(members, detail=detail))

    async def store(
        self, batch: Sequence[StoreItem], fence: Fence, *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """As the port."""
        limit = self.limited(limit)
        return await self.around_batch(
            "store", batch, lambda part: self._inner.store(part, fence, limit=limit)
        )

    async def drop(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """As the port."""
        return await self.around_batch("drop", batch, lambda part: self._inner.drop(part, fence))

    async def quarantine(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """As the port."""
        return await self.around_batch(
            "quarantine", batch, lambda part: self._inner.quarantine(part, fence)
        )

    async def verify(
        self, batch: Sequence[Member], *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """As the port."""
        limit = self.limited(limit)
        return await self.around_batch(
            "verify", batch, lambda part: self._inner.verify(part, limit=limit)
        )

    def open(self, member: Member) -> AbstractAsyncContextManager[RangedReader]:
        """As the port."""
        return self._open(member)

    @asynccontextmanager
    async def _open(self, member: Member) -> AsyncIterator[RangedReader]:
        async with AsyncExitStack() as stack:
            entered = partial(stack.enter_async_context, self._inner.open(member))
            yield self.reading(await self.around("open", entered))

    async def inventory(self, group_id: str | None = None) -> Mapping[str, Sequence[InventoryItem]]:
        """As the port."""
        return await self.around("inventory", lambda: self._inner.inventory(group_id))

    async def capacity(self) -> TierCapacity:
        """As the port."""
        return await self.around("capacity", self._inner.capacity)

    def map_path(self, member: Member) -> str | None:
        """As the port."""
        return self._inner.map_path(member)

    # --- what a tier may have beside it -----------------------------------------------------------

    def remark(self) -> str:
        """As `ports.Remarking`; empty where the wrapped tier has nothing of the kind."""
        remark = getattr(self._inner, "remark", None)
        return str(remark()) if callable(remark) else ""

    def dropping(self, keys: Sequence[str]) -> str:
        """As `ports.Foretelling`; empty where the wrapped tier has one way."""
        dropping = getattr(self._inner, "dropping", None)
        return str(dropping(keys)) if callable(dropping) else ""

    def unfit(self, member: Member) -> str:
        """As `ports.Choosing`; empty where the wrapped tier does not choose."""
        unfit = getattr(self._inner, "unfit", None)
        return str(unfit(member)) if callable(unfit) else ""

    async def unprovable(self, members: Sequence[Member]) -> Mapping[str, str]:
        """As `ports.Doubting`; empty where the wrapped tier reads back all that it shows."""
        if not callable(getattr(self._inner, "unprovable", None)):
            return {}
        inner = cast("Doubting", self._inner)
        return await self.around("unprovable", lambda: inner.unprovable(members))

    async def checks(self, *, evidence_max_age_s: float) -> Sequence[Check]:
        """As `ports.Checking`; none where the wrapped tier has nothing of the kind."""
        if not callable(getattr(self._inner, "checks", None)):
            return []
        inner = cast("Checking", self._inner)
        return await self.around(
            "checks", lambda: inner.checks(evidence_max_age_s=evidence_max_age_s)
        )

    @property
    def numbers(self) -> Sequence[str]:
        """As `ports.Reporting`; empty where the wrapped tier reports nothing."""
        return tuple(getattr(self._inner, "numbers", ()))

    async def report(self) -> MediumReport:
        """As `ports.Reporting`; only for a tier with `numbers`."""
        return await self.around("report", cast("Reporting", self._inner).report)
