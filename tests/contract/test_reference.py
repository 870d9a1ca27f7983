"""The contract suite on the reference tier."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from weightctl.adapters.conformance.reference import ReferenceMedium, ReferenceTier
from weightctl.adapters.conformance.suite.harness import TierHarness
from weightctl.adapters.conformance.suite.material import HOLDER
from weightctl.adapters.conformance.suite.tier_suite import TierSuite
from weightctl.controller.core.observation import Member, Members, TierObservation
from weightctl.controller.core.tiers import TierCapacity
from weightctl.controller.ports import (
    DropItem,
    Fence,
    InventoryItem,
    Limiter,
    Outcome,
    RangedReader,
    StoreItem,
    Tier,
)


class Gate:
    """What a request passes on its way to the medium; shut, it waits there."""

    def __init__(self) -> None:
        self.shut = False

    async def passed(self) -> None:
        while self.shut:  # noqa: ASYNC110 - it is opened by another thread
            await anyio.sleep(0.005)


class GatedTier(ReferenceTier):
    """The reference tier over a medium that may hang."""

    gate: Gate

    async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
        await self.gate.passed()
        return await super().observe(members, detail=detail)

    async def store(
        self, batch: Sequence[StoreItem], fence: Fence, *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        await self.gate.passed()
        return await super().store(batch, fence, limit=limit)

    async def drop(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        await self.gate.passed()
        return await super().drop(batch, fence)

    async def quarantine(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        await self.gate.passed()
        return await super().quarantine(batch, fence)

    @asynccontextmanager
    async def open(self, member: Member) -> AsyncIterator[RangedReader]:
        await self.gate.passed()
        async with super().open(member) as reader:
            yield reader

    async def verify(
        self, batch: Sequence[Member], *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        await self.gate.passed()
        return await super().verify(batch, limit=limit)

    async def inventory(self, group_id: str | None = None) -> Mapping[str, Sequence[InventoryItem]]:
        await self.gate.passed()
        return await super().inventory(group_id)

    async def capacity(self) -> TierCapacity:
        await self.gate.passed()
        return await super().capacity()


class ReferenceHarness(TierHarness):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._medium = ReferenceMedium()
        self.gate = Gate()

    def tier(self, *, capacity_bytes: int | None = None, read_only: bool = False) -> Tier:
        if read_only:
            pytest.skip("the reference medium needs no setting up")
        if capacity_bytes is not None:
            self._medium.limit_bytes = capacity_bytes
        return self._gated(GatedTier("tier", self._medium, holder=HOLDER))

    def tier_of(self, holder: str, *, adopt: bool = False, read_only: bool = False) -> Tier:
        if read_only:
            pytest.skip("the reference medium needs no setting up")
        return self._gated(GatedTier("tier", self._medium, holder=holder, adopt=adopt))

    def _gated(self, tier: GatedTier) -> Tier:
        tier.gate = self.gate
        return tier

    def kill_writer(self, member: Member, content: bytes) -> None:
        pass  # what a killed writer held in memory has gone with it

    def take_away(self) -> None:
        self._medium.away = True

    def bring_back(self) -> None:
        self._medium.away = False

    def hang(self) -> None:
        self.gate.shut = True

    def resume(self) -> None:
        self.gate.shut = False

    def replace(self) -> None:
        self._medium.away = True

    def flip_bit(self, member: Member, content: bytes) -> None:
        stored = self._medium.seen(member)
        assert stored is not None
        stored.content[member.size_bytes // 2] ^= 0x10

    def cut(self, member: Member, content: bytes) -> None:
        stored = self._medium.seen(member)
        assert stored is not None
        del stored.content[member.size_bytes // 2 :]

    def begin_anew(self) -> None:
        self._medium = ReferenceMedium(epoch="anew")

    def fingerprint(self) -> object:
        return repr(self._medium)


class TestReference(TierSuite):
    answers_s = 0.5

    @pytest.fixture
    def harness(self, tmp_path: Path) -> TierHarness:
        return ReferenceHarness(tmp_path)
