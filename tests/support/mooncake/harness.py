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
from weightctl.adapters.mooncake.lab.cluster import LEASE_TTL_S
from weightctl.adapters.mooncake.options import ConnectionOptions, MooncakeOptions
from weightctl.adapters.mooncake.root_fs.tier import DiskTier
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
PATIENCE_S = 60.0
"""For whatever has to succeed; where a Master hangs, who asks gives up sooner."""


class Named(Protocol):
    """Where a cluster is."""

    @property
    def master(self) -> str: ...
    @property
    def admin(self) -> str: ...


class Medium(Named, Protocol):
    """What a harness needs of a cluster."""

    def get(self, path: str) -> str: ...
    def empty(self) -> None: ...
    def settle(self) -> None: ...
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...


class Closable(Medium, Protocol):
    """A cluster that can refuse at once: a deadline is waited for only where it hangs."""

    def take_away(self) -> None: ...
    def bring_back(self) -> None: ...


def connection_options(medium: Named, **changes: object) -> ConnectionOptions:
    """Options for a cluster with short leases, on a machine that may be busy."""
    options = ConnectionOptions(
        admin=tuple(medium.admin.split(",")),
        master=medium.master,
        deadline_s=PATIENCE_S,
        lease_ttl_s=LEASE_TTL_S,
        patience_s=PATIENCE_S,
        appear_s=PATIENCE_S,
        claim_s=0.0,
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

    def __init__(self, medium: Closable, kind: str, folder: Path, **changes: object) -> None:
        super().__init__(folder)
        self.medium = medium
        self._kind = kind
        self._options = connection_options(medium, **changes)
        self.bring_back()  # what a case that failed has left
        self.resume()
        medium.empty()

    def tier(self, *, capacity_bytes: int | None = None, read_only: bool = False) -> Tier:
        if capacity_bytes is not None:
            pytest.skip("the room is the hosts', not the tier's")
        return self._opened(self._options, read_only=read_only)

    def tier_of(self, holder: str, *, adopt: bool = False, read_only: bool = False) -> Tier:
        folder = self.folder / OTHERS / (holder or "nobody")
        opened = context(folder, read_only=read_only, holder=holder)
        return self._made_in(replace(self._options, adopt=adopt), opened)

    def _opened(self, connection: ConnectionOptions, *, read_only: bool) -> Tier:
        return self._made_in(connection, context(self.folder, read_only=read_only))

    def _made_in(self, connection: ConnectionOptions, opened: TierContext) -> Tier:
        memory = self._kind == "mooncake-memory"
        options = MooncakeOptions(
            kind=self._kind,
            connection=connection,
            capacity_bytes=None if memory else CAPACITY_BYTES,
        )
        made = DiskTier if self._kind == "mooncake-disk" else MooncakeTier
        tier = made(self.name, options, shared(connection, opened))
        return tier if memory else DeletingTier(tier)

    def take_away(self) -> None:
        self.medium.take_away()

    def bring_back(self) -> None:
        self.medium.bring_back()

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
