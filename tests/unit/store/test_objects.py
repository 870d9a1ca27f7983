"""Plain objects beside managed groups: the generic paths and the guard."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.stores import begin, deleted, manifest, opened, payload, published, refused
from tests.support.weights import ID, identity
from weightctl.adapters.conformance.reference import ReferenceMedium, ReferenceTier
from weightctl.controller.core.identity import Identity, payload_group_id
from weightctl.controller.core.observation import Member
from weightctl.controller.core.records import Availability, Residency
from weightctl.controller.errors import (
    CapacityError,
    ErrorCode,
    ManagedGroupError,
    TransientError,
    WeightError,
)
from weightctl.controller.ports import Fence, RangedReader, StoreItem
from weightctl.controller.store.objects import PlainObject
from weightctl.controller.store.store import WeightMetadataStore

CONTENT = b"plain bytes"
GROUP = payload_group_id(ID)
MEMBERS = [payload(ID), manifest(ID)]


@dataclass
class BytesReader:
    """Reads bytes that are in memory."""

    content: bytes
    instance_id: str = "source"

    @property
    def size_bytes(self) -> int:
        return len(self.content)

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        buffer[:] = self.content[offset : offset + len(buffer)]

    def fileno(self) -> int | None:
        return None


def source(content: bytes = CONTENT) -> Callable[[], AbstractAsyncContextManager[RangedReader]]:
    @asynccontextmanager
    async def opened_source() -> AsyncIterator[RangedReader]:
        yield BytesReader(content)

    return opened_source


def plain(key: str, content: bytes = CONTENT, **changes: object) -> PlainObject:
    item = PlainObject(key=key, size_bytes=len(content), sha256=sha256(content).digest())
    return replace(item, **changes)  # type: ignore[arg-type]


@dataclass
class Rig:
    """A store with plain objects and two tiers."""

    store: WeightMetadataStore
    hot: ReferenceTier
    cold: ReferenceTier
    media: list[ReferenceMedium] = field(default_factory=list)

    @property
    def tiers(self) -> list[ReferenceTier]:
        return [self.hot, self.cold]

    async def put(self, key: str, content: bytes = CONTENT, **changes: object) -> None:
        await self.store.objects.put(plain(key, content, **changes), self.hot, source(content))

    def held(self, tier: int = 0) -> list[str]:
        return sorted(key for _, key in self.media[tier].stored)

    async def members(self) -> Sequence[str]:
        return (await self.store.directory.members(GROUP)).keys


@asynccontextmanager
async def rig(folder: Path, limit_bytes: int = 2**40) -> AsyncIterator[Rig]:
    media = [ReferenceMedium(limit_bytes=limit_bytes), ReferenceMedium()]
    hot, cold = ReferenceTier("hot", media[0], hot=True), ReferenceTier("cold", media[1])
    async with opened(folder) as store, hot, cold:
        yield Rig(store, hot, cold, media)


async def importing(store: WeightMetadataStore) -> None:
    await begin(store, ID)
    await store.directory.register(ID, MEMBERS)


async def ready(store: WeightMetadataStore) -> None:
    await importing(store)
    await published(store, ID)


async def degraded(store: WeightMetadataStore) -> None:
    await ready(store)
    await store.publish_observation(
        identity=ID,
        expected_metadata_generation=2,
        availability=Availability.DEGRADED,
        residency=Residency.MIXED,
    )


async def deleting(store: WeightMetadataStore) -> None:
    await ready(store)
    await store.delete_revision(identity=ID, expected_metadata_generation=2)


async def tombstone(store: WeightMetadataStore) -> None:
    await ready(store)
    await deleted(store, ID)


STATES = {
    "importing": importing,
    "ready": ready,
    "degraded": degraded,
    "deleting": deleting,
    "tombstone": tombstone,
}
WITH_MEMBERS = {name: state for name, state in STATES.items() if name != "tombstone"}
State = Callable[[WeightMetadataStore], "object"]


# --- plain objects alone --------------------------------------------------------------------------


async def test_object_is_stored_found_after_a_restart_and_removed(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.put("a")
        await r.put("a")
        assert r.held() == ["a"]
        await r.store.objects.remove("a", r.tiers)
        assert r.held() == []
        await refused(ErrorCode.NOT_FOUND, lambda: r.store.objects.remove("a", r.tiers))
        await r.put("b")
    async with rig(tmp_path) as r:
        assert await r.store.objects.cleanup(r.tiers) == 1  # its tier forgot it
        assert await r.store.objects.cleanup(r.tiers) == 0


async def test_other_content_under_a_key_is_a_conflict(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.put("a")
        await refused(ErrorCode.CONFLICT, lambda: r.put("a", b"other"))
        await refused(ErrorCode.CONFLICT, lambda: r.put("a", group_id="g"))
        await r.put("a", tenant_id="tenant-b")


async def test_failed_put_leaves_nothing_behind(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        wrong = plain("a", sha256=b"x" * 32)
        with pytest.raises(TransientError):
            await r.store.objects.put(wrong, r.hot, source())
        await r.put("a", b"other content now")


async def test_unanswered_tier_keeps_an_object_known(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.put("a")
        r.media[1].away = True
        with pytest.raises(TransientError):
            await r.store.objects.remove("a", r.tiers)
        assert await r.store.objects.cleanup(r.tiers) == 0
        r.media[1].away = False
        await r.store.objects.remove("a", r.tiers)


async def test_invalid_object_is_refused(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        for changes in ({"key": ""}, {"tenant_id": "_x"}, {"size_bytes": -1}, {"sha256": b""}):
            item = plain("a", **changes) if "key" not in changes else plain("")
            with pytest.raises(WeightError):
                await r.store.objects.put(item, r.hot, source())


async def test_many_of_one_group_at_once_keep_its_checksum(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await asyncio.gather(*(r.put(f"k{n}", group_id="g") for n in range(40)))
        await asyncio.gather(*(r.store.objects.remove(f"k{n}", r.tiers) for n in range(0, 40, 2)))
        assert len(await r.store.directory.members("g")) == 20
    async with opened(tmp_path) as store:
        assert len(await store.directory.members("g")) == 20


# --- the guard ------------------------------------------------------------------------------------


@pytest.mark.acceptance(90)
@pytest.mark.parametrize("state", STATES.values(), ids=STATES.keys())
async def test_put_into_a_managed_group_is_refused_unless_importing(
    tmp_path: Path, state: State
) -> None:
    async with rig(tmp_path) as r:
        await state(r.store)  # type: ignore[misc]
        if state is importing:
            await r.put("extra", group_id=GROUP)
            assert "extra" in await r.members()
        else:
            before = await r.members()
            with pytest.raises(ManagedGroupError, match="UNAVAILABLE_IN_CURRENT_STATUS"):
                await r.put("extra", group_id=GROUP)
            assert await r.members() == before
            assert r.held() == []


@pytest.mark.parametrize("state", WITH_MEMBERS.values(), ids=WITH_MEMBERS.keys())
async def test_member_s_key_is_guarded_whatever_group_a_put_names(
    tmp_path: Path, state: State
) -> None:
    async with rig(tmp_path) as r:
        await state(r.store)  # type: ignore[misc]
        for group in ("", "other"):
            with pytest.raises(ManagedGroupError):
                await r.put(MEMBERS[0].key, group_id=group)


@pytest.mark.acceptance(92)
@pytest.mark.parametrize("state", WITH_MEMBERS.values(), ids=WITH_MEMBERS.keys())
async def test_generic_removal_refuses_members_in_every_state(tmp_path: Path, state: State) -> None:
    async with rig(tmp_path) as r:
        await state(r.store)  # type: ignore[misc]
        await r.put("plain")
        before = await r.members()
        key = MEMBERS[0].key
        with pytest.raises(ManagedGroupError, match="UNAVAILABLE_IN_CURRENT_STATUS"):
            await r.store.objects.remove(key, r.tiers)
        results = await r.store.objects.batch_remove([key, "plain", "none"], r.tiers)
        assert isinstance(results[key], ManagedGroupError)
        assert results["plain"] is None
        assert isinstance(results["none"], WeightError)
        assert await r.members() == before


B = "tenant-b"


@pytest.mark.parametrize("state", STATES.values(), ids=STATES.keys())
async def test_put_of_another_tenant_never_joins_a_managed_group(
    tmp_path: Path, state: State
) -> None:
    """Under the group's name and a member's key, another tenant's object is a plain one."""
    async with rig(tmp_path) as r:
        await state(r.store)  # type: ignore[misc]
        before, idle_s = await r.members(), r.store.import_idle_s(identity=ID)
        for key in (MEMBERS[0].key, "extra"):
            await r.put(key, tenant_id=B, group_id=GROUP)
        assert await r.members() == before
        assert r.store.import_idle_s(identity=ID) == idle_s
        assert r.held() == sorted([MEMBERS[0].key, "extra"])
        assert GROUP not in {group for group, _ in r.media[0].stored}


GenericPath = Callable[[Rig], Awaitable[object]]
OF_TENANT_B: dict[str, GenericPath] = {
    "remove": lambda r: r.store.objects.remove(MEMBERS[0].key, r.tiers, tenant_id=B),
    "batch-remove": lambda r: r.store.objects.batch_remove([MEMBERS[0].key], r.tiers, tenant_id=B),
    "by-regex": lambda r: r.store.objects.remove_by_regex(".*", r.tiers, tenant_id=B),
    "remove-all": lambda r: r.store.objects.remove_all(r.tiers, tenant_id=B),
    "evict": lambda r: r.store.objects.batch_evict(r.hot, 10**9),
    "quota": lambda r: r.store.objects.quota_evict(B, 0, r.hot),
    "clear": lambda r: r.store.objects.replica_clear([MEMBERS[0].key], r.hot, tenant_id=B),
}


@pytest.mark.parametrize("path", OF_TENANT_B.values(), ids=OF_TENANT_B)
async def test_generic_path_of_another_tenant_takes_its_own_object_and_no_member(
    tmp_path: Path, path: GenericPath
) -> None:
    async with rig(tmp_path) as r:
        await begin(r.store, ID)
        await r.store.directory.register(ID, real_members())
        await hold(r, real_members(), CONTENT)
        await r.put(MEMBERS[0].key, tenant_id=B, group_id=GROUP)
        assert len(r.held()) == 3
        await path(r)
        assert sorted(r.media[0].stored) == sorted((GROUP, each.key) for each in MEMBERS)
        assert len(await r.members()) == 2
        await r.store.objects.cleanup(r.tiers)
        results = await r.store.objects.batch_remove([MEMBERS[0].key], r.tiers, tenant_id=B)
        error = results[MEMBERS[0].key]
        assert isinstance(error, WeightError)
        assert error.code is ErrorCode.NOT_FOUND


async def test_a_tenants_own_group_is_guarded_beside_that_of_the_default_tenant(
    tmp_path: Path,
) -> None:
    other = identity(tenant=B)
    group_b = payload_group_id(other)
    async with rig(tmp_path) as r:
        assert len(await r.store.directory.members(group_b)) == 0
        await r.put("early", tenant_id=B, group_id=group_b)
        await begin(r.store, other)
        assert list((await r.store.directory.members(group_b)).keys) == ["early"]
        with pytest.raises(ManagedGroupError):
            await r.store.objects.remove("early", r.tiers, tenant_id=B)
        await r.put("extra", tenant_id=B, group_id=group_b)
        await r.put("extra", group_id=group_b)
        assert list((await r.store.directory.members(group_b)).keys) == ["early", "extra"]
        assert (await r.store.objects.remove_all(r.tiers)).removed == 1


async def hold(r: Rig, members: Sequence[Member], content: bytes) -> None:
    """Store the members' bytes in the hot tier, as the lifecycle path does."""
    fence = Fence(holder=r.store.holder, term=r.store.term, operation_id=0, generation=1)
    batch = [StoreItem(member=member, open_source=source(content)) for member in members]
    await r.hot.store(batch, fence)


def real_members(of: Identity = ID, content: bytes = CONTENT) -> list[Member]:
    digest = sha256(content).digest()
    return [
        replace(payload(of), size_bytes=len(content), sha256=digest),
        replace(manifest(of), size_bytes=len(content), sha256=digest),
    ]


@pytest.mark.acceptance(91)
async def test_memory_pressure_leaves_members_and_refuses_the_put(tmp_path: Path) -> None:
    async with rig(tmp_path, limit_bytes=3 * len(CONTENT)) as r:
        await begin(r.store, ID)
        await r.store.directory.register(ID, real_members())
        await hold(r, real_members(), CONTENT)
        await r.put("first")
        await r.put("second")  # evicts the first one
        assert r.held() == sorted([*(member.key for member in MEMBERS), "second"])
        with pytest.raises(CapacityError, match="NO_AVAILABLE_HANDLE"):
            await r.put("large", CONTENT * 2)
        assert {member.key for member in MEMBERS} <= set(r.held())
        assert len(await r.members()) == 2


async def test_sweeping_paths_skip_members_silently(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await begin(r.store, ID)
        await r.store.directory.register(ID, real_members())
        await hold(r, real_members(), CONTENT)
        for key in ("a1", "a2", "b1", "pinned"):
            await r.put(key, hard_pin=key == "pinned")
        objects = r.store.objects
        assert await objects.remove_by_regex("a.*|weights/.*", r.tiers) == 2
        assert await objects.batch_evict(r.hot, 10**9) == len(CONTENT)  # b1; pinned stays
        assert await objects.quota_evict("default", 0, r.hot) == 0
        cleared = await objects.replica_clear([MEMBERS[0].key, "pinned"], r.hot)
        assert isinstance(cleared[MEMBERS[0].key], ManagedGroupError)
        assert cleared["pinned"] is None
        assert await objects.cleanup(r.tiers) == 2  # b1 and pinned are nowhere any more
        done = await objects.remove_all(r.tiers)
        assert (done.removed, done.whole) == (0, False)
        assert set(r.held()) == {member.key for member in MEMBERS}
        assert len(await r.members()) == 2


async def test_cleanup_skips_members_that_no_tier_holds(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await ready(r.store)
        assert await r.store.objects.cleanup(r.tiers) == 0
        assert len(await r.members()) == 2


async def test_remove_all_is_whole_without_managed_groups(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await begin(r.store, identity(tenant="tenant-b"))
        for key in ("a", "b"):
            await r.put(key)
        done = await r.store.objects.remove_all(r.tiers)
        assert (done.removed, done.whole) == (2, True)


async def test_quota_brings_one_tenant_down(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        for key in ("a", "b", "c"):
            await r.put(key)
            await r.put(key, tenant_id="tenant-b")
        freed = await r.store.objects.quota_evict("default", len(CONTENT), r.hot)
        assert freed == 2 * len(CONTENT)
        assert r.held() == ["a", "b", "c", "c"]


@pytest.mark.acceptance(67)
async def test_manifest_in_another_group_fails_the_import(tmp_path: Path) -> None:
    """The key exists outside the group, so it can neither be registered nor be counted."""
    async with rig(tmp_path) as r:
        await r.put(manifest(ID).key, group_id="elsewhere")
        await begin(r.store, ID)
        await refused(ErrorCode.CONFLICT, lambda: r.store.directory.register(ID, [manifest(ID)]))
        await r.store.directory.register(ID, [payload(ID)])
        assert len(await r.members()) == 1
