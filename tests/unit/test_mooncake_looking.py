"""One look for the tiers of a cluster that ask at the same time, and for nobody who asks later."""

import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio import to_thread

from tests.support.mooncake.fake import FakeMooncake, Object
from tests.support.mooncake.tiers import both_of
from weightctl.adapters.conformance.suite.material import member_of, members_of
from weightctl.adapters.mooncake.looking import Looking
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.clock import SystemClock
from weightctl.controller.core.observation import Members, MemberState
from weightctl.controller.core.policy import Policy
from weightctl.controller.runtime.border import BorderedTier
from weightctl.controller.runtime.observer import Observer, ObserverOptions
from weightctl.controller.runtime.timer import Timer

if TYPE_CHECKING:
    from weightctl.adapters.mooncake.looking import Take

ABSENT, COMPLETE = MemberState.ABSENT, MemberState.COMPLETE
REVISIONS, MEMBERS = 20, 30
ASKED = "/batch_query_keys"
PATIENT_S = 120.0
HELD = "held"


class Held(FakeMooncake):
    """A Master that answers for one key with what was so when it was asked, but only when told."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.told = threading.Event(), threading.Event()
        self.told.set()

    def _answer(self, path: str) -> tuple[int, bytes]:
        answer = super()._answer(path)
        if path.endswith(f",{HELD}"):
            self.asked.set()
            self.told.wait(PATIENT_S)
        return answer

    def ask_for(self, number: int) -> None:
        """Wait for a question."""
        assert self.asked.wait(PATIENT_S), number
        self.asked.clear()


@pytest.fixture
def master() -> Iterator[Held]:
    made = Held()
    yield made
    made.told.set()
    made.close()


@asynccontextmanager
async def tiers(medium: FakeMooncake, folder: Path) -> AsyncIterator[list[MooncakeTier]]:
    """Both, on a cluster that is taken."""
    async with both_of(medium, folder) as made:
        await made[0].capacity()
        yield list(made)


def revision(number: int) -> Members:
    keys = [f"r{number}/k{index}" for index in range(MEMBERS)]
    return members_of([member_of(key, b"content", f"weight:{number}") for key in keys])


def observer(made: Sequence[MooncakeTier]) -> Observer:
    clock, patient = SystemClock(), ObserverOptions(deadline_s=PATIENT_S)
    bordered = [BorderedTier(tier, tier.profile, clock) for tier in made]
    return Observer(bordered, clock=clock, timer=Timer(clock), options=patient)


async def test_a_pass_asks_once_for_each_revision_however_many_tiers_the_cluster_has(
    master: Held, tmp_path: Path
) -> None:
    """Without sharing each pass below sends twice as many questions."""
    passing = [revision(number) for number in range(REVISIONS)]
    master.objects["r3/k4"] = Object("x", bytearray(b"content"), complete=True, disk="host0")
    async with tiers(master, tmp_path) as made:
        asked = made[0]._connection.serving.admin.asked
        looks = observer(made)
        before = asked[ASKED]
        memory, disk = await looks.sweep(passing)
        assert asked[ASKED] - before == REVISIONS
        assert (len(memory), len(disk)) == (REVISIONS, REVISIONS)
        assert disk[3].count(COMPLETE) == 1
        assert memory[3].count(COMPLETE) == 0
        before = asked[ASKED]
        for members in passing:
            await looks.observe(members, Policy(), with_capacity=False)
        assert asked[ASKED] - before == REVISIONS


async def test_who_asks_after_a_question_was_sent_is_given_the_answer_to_another_one(
    master: Held, tmp_path: Path
) -> None:
    members = members_of([member_of(HELD, b"content")])
    seen: dict[str, list[int]] = {}

    async def look(tier: MooncakeTier, name: str) -> None:
        seen[name] = list((await tier.observe(members)).states)

    async with tiers(master, tmp_path) as (memory, disk), anyio.create_task_group() as tasks:
        master.told.clear()
        tasks.start_soon(look, memory, "early")
        await to_thread.run_sync(master.ask_for, 1)
        master.objects[HELD] = Object("x", bytearray(b"content"), complete=True, disk="host0")
        tasks.start_soon(look, disk, "late")
        await to_thread.run_sync(master.ask_for, 2)
        master.told.set()
    assert seen == {"early": [ABSENT], "late": [COMPLETE]}


async def test_who_shares_a_look_that_is_given_up_is_answered_by_one_of_his_own(
    master: Held, tmp_path: Path
) -> None:
    members = members_of([member_of(HELD, b"content")])
    seen: list[int] = []

    async def look(tier: MooncakeTier) -> None:
        seen.extend((await tier.observe(members)).states)

    async with tiers(master, tmp_path) as (memory, disk), anyio.create_task_group() as tasks:
        master.told.clear()
        given_up = anyio.CancelScope()

        async def give_up() -> None:
            with given_up:
                await look(memory)

        tasks.start_soon(give_up)
        tasks.start_soon(look, disk)
        await to_thread.run_sync(master.ask_for, 1)
        given_up.cancel()
        await to_thread.run_sync(master.ask_for, 2)
        master.told.set()
    assert seen == [ABSENT]


async def test_what_comes_when_its_try_has_ended_is_taken_by_nobody(
    master: Held, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of a look that was given up goes on, and may have an answer of an old epoch."""
    threads = []

    def look_late(look: Looking, keys: Sequence[str], take: "Take") -> str:
        threads.append(take)
        return scan_at_once(look, keys, take)

    scan_at_once = Looking._scan_at_once
    taken: list[int] = []
    async with tiers(master, tmp_path) as made:
        monkeypatch.setattr(Looking, "_scan_at_once", look_late)
        await made[0]._connection.look.scan(["k"], lambda start, _, __: taken.append(start))
        assert taken == [0]
        for take in threads:
            take(0, ["k"], {})
    assert taken == [0]


async def test_a_master_that_is_away_is_asked_once_for_all_tiers(
    master: Held, tmp_path: Path
) -> None:
    async with tiers(master, tmp_path) as made:
        asked = made[0]._connection.serving.admin.asked
        master.take_away()
        before = asked["/health"]
        signs = await observer(made).pulse()
        assert asked["/health"] - before == 1
        assert [sign.epoch for sign in signs.values()] == ["", ""]
