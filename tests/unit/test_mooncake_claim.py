"""Whose a cluster is, over an imitated Master that forgets, and hosts that remember too much."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.mooncake.fake import FakeMooncake, Object
from tests.support.mooncake.imitation import LEASED
from tests.support.mooncake.tiers import Shifted, tier_of
from weightctl.adapters.conformance.suite.material import (
    HOLDER,
    member_of,
    members_of,
    states,
    store,
)
from weightctl.adapters.mooncake.ownership.claims import OWNER_PREFIX, owner_key
from weightctl.adapters.mooncake.ownership.epoch import MARKER_PREFIX
from weightctl.controller.clock import SystemClock
from weightctl.controller.core.observation import MemberState

UNKNOWN, ABSENT = MemberState.UNKNOWN, MemberState.ABSENT
MEMBER = member_of("payload", b"content")


async def test_a_store_that_was_refused_does_not_take_a_cluster_that_forgot_its_owner(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with tier_of(imitated, tmp_path, "a") as owner, tier_of(imitated, tmp_path, "b") as other:
        assert await states(owner, MEMBER) == [ABSENT]
        assert await states(other, MEMBER) == [UNKNOWN]
        await to_thread.run_sync(imitated.empty)
        assert await states(other, MEMBER) == [UNKNOWN]
        assert await states(owner, MEMBER) == [ABSENT], "it says anew whose the cluster is"
        assert list(await to_thread.run_sync(owners, imitated)) == [owner_key("a", 1)]


async def test_the_owner_has_the_cluster_again_after_its_master_was_restarted(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with tier_of(imitated, tmp_path, "a") as owner:
        assert await states(owner, MEMBER) == [ABSENT]
        await to_thread.run_sync(imitated.settle)
        await to_thread.run_sync(imitated.restart)
        assert await states(owner, MEMBER) == [ABSENT]
    async with tier_of(imitated, tmp_path, "b") as other:
        assert await states(other, MEMBER) == [UNKNOWN], "what the hosts kept names the owner"


async def test_an_owner_that_a_host_brought_back_from_its_disk_is_not_the_living_one(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    imitated.objects[owner_key("0-long-gone")] = Object(
        "the host", bytearray(1), complete=True, disk="host0"
    )
    async with tier_of(imitated, tmp_path, "a") as early:
        assert await states(early, MEMBER) == [UNKNOWN], "while it is the only one it counts"
    del imitated.objects[owner_key("0-long-gone")]
    async with tier_of(imitated, tmp_path, "a") as early:
        assert await states(early, MEMBER) == [UNKNOWN], "refused, until a person says otherwise"
    async with tier_of(imitated, tmp_path, "a", adopt=True) as owner:
        assert await states(owner, MEMBER) == [ABSENT]
    imitated.objects[owner_key("0-long-gone")] = Object(
        "the host", bytearray(1), complete=True, disk="host0"
    )
    async with tier_of(imitated, tmp_path, "a") as owner:
        assert await states(owner, MEMBER) == [ABSENT]


# --- a store that was given the cluster, and the one that had it --------------------------------


async def test_a_refused_store_stays_refused_when_only_its_removed_claim_comes_back(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with tier_of(imitated, tmp_path, "a") as former:
        assert await states(former, MEMBER) == [ABSENT]
        await to_thread.run_sync(imitated.settle)
        old = imitated.objects[owner_key("a")]
        async with tier_of(imitated, tmp_path, "b", adopt=True) as owner:
            assert await states(owner, MEMBER) == [ABSENT]
            assert await states(former, MEMBER) == [UNKNOWN]
            await to_thread.run_sync(imitated.restart)
            imitated.objects.clear()  # the owner's host is not back yet
            imitated.objects[owner_key("a")] = brought_back(old)
            assert await states(former, MEMBER) == [UNKNOWN]
            assert owners(imitated) == [owner_key("a")], "it puts nothing either"
    async with tier_of(imitated, tmp_path, "a") as again:
        assert await states(again, MEMBER) == [UNKNOWN]
    async with tier_of(imitated, tmp_path, "a", adopt=True) as given_back:
        assert await states(given_back, MEMBER) == [ABSENT]
    async with tier_of(imitated, tmp_path, "b") as refused:
        assert await states(refused, MEMBER) == [UNKNOWN]


@pytest.mark.parametrize("back", [("a",), ("a", "b")], ids=["former", "both"])
async def test_a_claim_that_was_taken_over_does_not_lock_the_owner_out_when_hosts_bring_it_back(
    imitated: FakeMooncake, tmp_path: Path, back: tuple[str, ...]
) -> None:
    async with tier_of(imitated, tmp_path, "a") as former:
        assert await states(former, MEMBER) == [ABSENT]
        await to_thread.run_sync(imitated.settle)
        kept = dict(imitated.objects)
    async with tier_of(imitated, tmp_path, "b", adopt=True) as owner:
        assert await states(owner, MEMBER) == [ABSENT]
        await to_thread.run_sync(imitated.settle)
        kept |= imitated.objects
    imitated.objects.clear()  # all of it was without power
    for key, one in kept.items():
        if key.startswith(tuple(map(owner_key, back))):
            imitated.objects[key] = brought_back(one)
    async with tier_of(imitated, tmp_path, "b") as owner:
        assert await states(owner, MEMBER) == [ABSENT]
        (claim,) = owners(imitated)
        assert claim.startswith(owner_key("b"))
        assert imitated.objects[claim].memory, "it is in memory again, above what was brought back"


async def test_a_claim_that_comes_back_late_ends_the_one_below_it(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    clock = Shifted()
    async with tier_of(imitated, tmp_path, "a", clock=clock) as former:
        assert await states(former, MEMBER) == [ABSENT]
        imitated.objects[owner_key("b", 5)] = Object(
            "the host", bytearray(1), complete=True, disk="host1"
        )
        clock.ahead_s += 3600
        assert await states(former, MEMBER) == [UNKNOWN]
    async with tier_of(imitated, tmp_path, "b") as owner:
        assert await states(owner, MEMBER) == [ABSENT]


async def test_adopt_that_was_left_on_takes_the_cluster_once_in_one_start(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with tier_of(imitated, tmp_path, "a", adopt=True) as former:
        assert await states(former, MEMBER) == [ABSENT]
        async with tier_of(imitated, tmp_path, "b", adopt=True) as owner:
            for _ in range(3):
                assert await states(owner, MEMBER) == [ABSENT]
                assert await states(former, MEMBER) == [UNKNOWN]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    "name",
    ["x,{}", "x\n{}", "{}/x", "x/1/{}", "x/", ""],
    ids=["comma", "line-feed", "key-in-front", "key-behind", "no-rank", "nobody"],
)
async def test_what_only_begins_like_a_claim_disowns_nobody_and_costs_no_object(
    imitated: FakeMooncake, tmp_path: Path, rank: int, name: str
) -> None:
    """The Master answers for the parts of a key with a comma."""
    managed, cached = "weights/a/b/c/1/payload/0", "kv-17"
    async with tier_of(imitated, tmp_path) as owner:
        (member,) = await store(owner, {managed: b"content"})
        await to_thread.run_sync(imitated.settle)
    if rank:
        await to_thread.run_sync(imitated.restart)
        async with tier_of(imitated, tmp_path) as owner:
            assert await states(owner, member) == [ABSENT], "its memory is lost"
    imitated.objects[cached] = strangers()
    for victim in (managed, cached):
        imitated.objects[OWNER_PREFIX + name.format(victim)] = strangers()
    left = {key for key in imitated.objects if not key.startswith(f"{OWNER_PREFIX}{HOLDER}")}
    async with tier_of(imitated, tmp_path) as owner:
        observation = await owner.observe(members_of([member]))
        assert not observation.problem
        assert left <= set(imitated.objects)


class Unlisted(FakeMooncake):
    """A Master that does not list its keys, as when they are too many."""

    lists = True

    def _answer(self, path: str) -> tuple[int, bytes]:
        status, body = super()._answer(path)
        return status if self.lists or path != "/get_all_keys" else 503, body


@pytest.fixture
def unlisted() -> Iterator[Unlisted]:
    made = Unlisted()
    yield made
    made.close()


async def test_a_cluster_that_is_held_stays_held_when_its_keys_cannot_be_listed(
    unlisted: Unlisted, tmp_path: Path
) -> None:
    clock = Shifted()
    async with tier_of(unlisted, tmp_path, clock=clock) as owner:
        assert await states(owner, MEMBER) == [ABSENT]
        for lists in (False, True):
            unlisted.lists = lists
            clock.ahead_s += 7200
            assert await states(owner, MEMBER) == [ABSENT]
            assert ("could not be listed" in (await owner.report()).state) == (not lists)
        unlisted.lists = False
        await to_thread.run_sync(unlisted.empty)  # also the marker: restarted
        assert await states(owner, MEMBER) == [UNKNOWN], "in a new epoch it is not held yet"
    async with tier_of(unlisted, tmp_path, "other") as other:
        assert await states(other, MEMBER) == [UNKNOWN], "nor by whoever is new"
    assert not owners(unlisted)


def strangers() -> Object:
    return Object("a stranger", bytearray(b"x"), complete=True, memory={"10.0.0.1:2": 1})


class Contested(FakeMooncake):
    """A Master at which another store puts a claim of the same rank while ours is being put.

    What is to be removed is held at first, as by its offload.
    """

    rival = ""
    holds = 1

    def rpc_remove(self, keys: list[str]) -> list[int]:
        self.holds -= 1
        return [LEASED] * len(keys) if self.holds >= 0 else super().rpc_remove(keys)

    def rpc_end(self, client: str, key: str) -> int:
        if self.rival and key.startswith(OWNER_PREFIX):
            self.objects[owner_key(self.rival)] = strangers()
        return super().rpc_end(client, key)


@pytest.fixture
def contested() -> Iterator[Contested]:
    made = Contested()
    yield made
    made.close()


@pytest.mark.parametrize("rival, state", [("a", UNKNOWN), ("z", ABSENT)])
async def test_of_two_stores_that_claim_a_cluster_at_once_the_first_by_name_has_it(
    contested: Contested, tmp_path: Path, rival: str, state: MemberState
) -> None:
    contested.rival, clock = rival, Shifted()
    async with tier_of(contested, tmp_path, "m", clock=clock) as tier:
        assert await states(tier, MEMBER) == [state]
        there = owner_key("m") in contested.objects
        assert there == (state is ABSENT), "who yields leaves nothing"
        clock.ahead_s += 3600
        assert await states(tier, MEMBER) == [state]
        assert owners(contested) == [owner_key(min("m", rival))]


async def test_what_is_left_of_a_claim_of_the_same_rank_disowns_nobody_who_comes_before_it(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    clock = Shifted()
    async with tier_of(imitated, tmp_path, "a", clock=clock) as owner:
        assert await states(owner, MEMBER) == [ABSENT]
        imitated.objects[owner_key("m")] = strangers()
        clock.ahead_s += 3600
        assert await states(owner, MEMBER) == [ABSENT]
        assert owners(imitated) == [owner_key("a")]


async def test_an_owner_whose_claim_was_removed_puts_it_anew(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with tier_of(imitated, tmp_path, "a") as owner:
        assert await states(owner, MEMBER) == [ABSENT]
        del imitated.objects[owner_key("a")]
        assert await states(owner, MEMBER) == [ABSENT]
        assert owners(imitated) == [owner_key("a")]


async def test_who_acts_there_has_it_when_nothing_is_left_of_a_higher_claim(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with tier_of(imitated, tmp_path, "a", adopt=True) as former:
        assert await states(former, MEMBER) == [ABSENT]
        await to_thread.run_sync(imitated.settle)
        await to_thread.run_sync(imitated.restart)
        assert await states(former, MEMBER) == [ABSENT], "its rank is above 0 from now on"
    for key in owners(imitated):
        del imitated.objects[key]
    imitated.objects[owner_key("b")] = strangers()
    async with tier_of(imitated, tmp_path, "a") as former:
        assert await states(former, MEMBER) == [UNKNOWN]


@pytest.mark.parametrize("highest", [5, 10**17])
async def test_who_takes_a_cluster_over_is_above_all_claims_that_are_or_were_there(
    imitated: FakeMooncake, tmp_path: Path, highest: int
) -> None:
    imitated.objects[owner_key("b", highest)] = strangers()
    started_ms = SystemClock().wall_ms()
    async with tier_of(imitated, tmp_path, "a", adopt=True, claim_s=3600.0) as tier:
        assert await states(tier, MEMBER) == [ABSENT], "a person has said so: nothing is waited for"
    (claim,) = owners(imitated)
    rank = int(claim.rpartition("/")[2])
    assert rank > highest
    assert rank >= started_ms, "hosts may bring back what was removed long ago"


# --- a new epoch --------------------------------------------------------------------------------


async def test_a_newcomer_waits_for_what_the_hosts_bring_back_and_then_yields(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with tier_of(imitated, tmp_path, "a") as owner:
        assert await states(owner, MEMBER) == [ABSENT]
        await to_thread.run_sync(imitated.settle)
        await to_thread.run_sync(imitated.restart)
        late = dict(imitated.objects)
        imitated.objects.clear()
        clock = Shifted()
        async with tier_of(imitated, tmp_path, "b", clock=clock, claim_s=3600.0) as newcomer:
            observation = await newcomer.observe(members_of([MEMBER]))
            assert "its hosts may bring back whose it is" in observation.problem
            assert "or the host died that had its marker" in observation.problem
            assert not imitated.objects, "nothing is put meanwhile"
            clock.ahead_s += 3600
            assert await states(newcomer, MEMBER) == [UNKNOWN], "an owner would come first"
            assert not imitated.objects
            imitated.objects.update(late)
            observation = await newcomer.observe(members_of([MEMBER]))
            assert "belongs to another store" in observation.problem
            assert await states(owner, MEMBER) == [ABSENT]


async def test_an_owner_waits_in_a_new_epoch_too_and_goes_on_by_itself(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    clock = Shifted()
    async with tier_of(imitated, tmp_path, "a", clock=clock, claim_s=3600.0) as owner:
        assert await states(owner, MEMBER) == [UNKNOWN]
        clock.ahead_s += 5400
        assert await states(owner, MEMBER) == [ABSENT]
    async with tier_of(imitated, tmp_path, "a", clock=clock, claim_s=3600.0) as owner:
        assert await states(owner, MEMBER) == [ABSENT], "its epoch goes on: nothing to wait for"
        await to_thread.run_sync(imitated.settle)
        await to_thread.run_sync(imitated.restart)
        assert await states(owner, MEMBER) == [UNKNOWN]
        clock.ahead_s += 3600
        assert await states(owner, MEMBER) == [ABSENT]
        assert owners(imitated) == [owner_key("a", 1)]
        assert len([key for key in imitated.objects if key.startswith(MARKER_PREFIX)]) == 1


async def test_whoever_asks_once_for_the_room_waits_until_it_is_seen_whose_the_cluster_is(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    async with tier_of(imitated, tmp_path, "a", claim_s=0.2) as owner:
        assert await states(owner, MEMBER) == [UNKNOWN]
        assert (await owner.capacity()).total_bytes
        assert await states(owner, MEMBER) == [ABSENT]


def brought_back(one: Object) -> Object:
    """As a host reports it after a restart on its folder: no lease of the Master's is left."""
    return replace(one, owner="the host", memory={}, disk="host0", complete=True, lease_until=0.0)


def owners(imitated: FakeMooncake) -> list[str]:
    return [key for key in imitated.objects if key.startswith("weightctl-owner/")]
