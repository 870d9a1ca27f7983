"""The contract suite's harness over a Mooncake cluster, real or imitated."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Protocol, Self

import pytest

from weightctl.adapters.conformance.suite.harness import OTHERS, TierHarness
from weightctl.adapters.conformance.suite.material import context
from weightctl.adapters.mooncake.connection import shared
from weightctl.adapters.mooncake.options import ConnectionOptions, MooncakeOptions
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.core.observation import Member, Members, TierObservation
from weightctl.controller.core.tiers import TierCapacity, TierProfile
from weightctl.controller.ports import (
    DropItem,
    Fence,
    InventoryItem,
    Limiter,
    Outcome,
    RangedReader,
    StoreItem,
    Tier,
    TierContext,
)

CAPACITY_BYTES = 1024**3


class Medium(Protocol):
    """What a harness needs of a cluster."""

    master: str
    admin: str

    def get(self, path: str) -> str: ...
    def empty(self) -> None: ...
    def settle(self) -> None: ...
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...


def connection_options(medium: Medium, **changes: object) -> ConnectionOptions:
    """Options for a cluster with short leases, on a machine that may be busy."""
    options = ConnectionOptions(
        admin=tuple(medium.admin.split(",")),
        master=medium.master,
        deadline_s=20.0,
        lease_ttl_s=0.5,
        patience_s=30.0,
        appear_s=30.0,
        parking_bytes=64 * 1024 * 1024,
    )
    return replace(options, **changes)  # type: ignore[arg-type]


class DeletingTier:
    """A tier whose drops are those of a deletion: of the whole object."""

    def __init__(self, tier: Tier) -> None:
        self._tier = tier

    @property
    def profile(self) -> TierProfile:
        return self._tier.profile

    async def __aenter__(self) -> Self:
        await self._tier.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._tier.__aexit__(*exc_info)

    async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
        return await self._tier.observe(members, detail=detail)

    async def store(
        self, batch: Sequence[StoreItem], fence: Fence, *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        return await self._tier.store(batch, fence, limit=limit)

    async def drop(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        return await self._tier.drop([replace(item, whole=True) for item in batch], fence)

    async def quarantine(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        return await self._tier.quarantine(batch, fence)

    def open(self, member: Member) -> AbstractAsyncContextManager[RangedReader]:
        return self._tier.open(member)

    async def verify(
        self, batch: Sequence[Member], *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        return await self._tier.verify(batch, limit=limit)

    async def inventory(self, group_id: str | None = None) -> Mapping[str, Sequence[InventoryItem]]:
        return await self._tier.inventory(group_id)

    async def capacity(self) -> TierCapacity:
        return await self._tier.capacity()

    def map_path(self, member: Member) -> str | None:
        return self._tier.map_path(member)


class MooncakeHarness(TierHarness):
    """One tier of one kind over a cluster that other tests have used before."""

    name = "mooncake"
    hasty_s = 2.0
    """Deadline of a tier whose Master hangs, or is to be waited for."""

    def __init__(self, medium: Medium, kind: str, folder: Path, **changes: object) -> None:
        super().__init__(folder)
        self.medium = medium
        self._kind = kind
        self._options = connection_options(medium, **changes)
        self.bring_back()  # what a case that failed has left
        medium.empty()

    def tier(self, *, capacity_bytes: int | None = None, read_only: bool = False) -> Tier:
        if capacity_bytes is not None:
            pytest.skip("the room is the hosts', not the tier's")
        return self._opened(self._options, read_only=read_only)

    def tier_of(self, holder: str, *, adopt: bool = False, read_only: bool = False) -> Tier:
        folder = self.folder / OTHERS / (holder or "nobody")
        opened = context(folder, read_only=read_only, holder=holder)
        return self._made_in(replace(self._options, adopt=adopt), opened)

    def hasty_tier(self) -> Tier:
        return self._opened(replace(self._options, deadline_s=self.hasty_s), read_only=False)

    def _opened(self, connection: ConnectionOptions, *, read_only: bool) -> Tier:
        return self._made_in(connection, context(self.folder, read_only=read_only))

    def _made_in(self, connection: ConnectionOptions, opened: TierContext) -> Tier:
        memory = self._kind == "mooncake-memory"
        options = MooncakeOptions(
            kind=self._kind,
            connection=connection,
            capacity_bytes=None if memory else CAPACITY_BYTES,
        )
        tier = MooncakeTier(self.name, options, shared(connection, opened))
        return tier if memory else DeletingTier(tier)

    def take_away(self) -> None:
        self.medium.freeze()

    def bring_back(self) -> None:
        self.medium.thaw()

    def hang(self) -> None:
        self.medium.freeze()

    def resume(self) -> None:
        self.medium.thaw()

    def fingerprint(self) -> object:
        self.medium.settle()  # what the hosts do by themselves is no effect of asking
        keys = sorted(self.medium.get("/get_all_keys").splitlines())
        asked = [key for key in keys if "," not in key]
        path = "/batch_query_keys?keys=" + ",".join(asked)
        book = self.folder / "tiers"
        files = sorted(one.name for one in book.iterdir()) if book.exists() else []
        return (keys, json.loads(self.medium.get(path))["data"] if asked else {}, files)


class RealHarness(MooncakeHarness):
    """Over a real Master: one that is away is frozen, and each call then waits for a deadline."""

    def __init__(self, real: Medium, kind: str, folder: Path) -> None:
        super().__init__(real, kind, folder, deadline_s=self.hasty_s)
