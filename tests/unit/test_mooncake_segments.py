"""Which segments will soon be gone, and where new objects are put meanwhile."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from tests.support.virtual_time import VirtualClock, settle
from weightctl.adapters.mooncake.master.admin import Segment
from weightctl.adapters.mooncake.master.replicas import LOCAL_DISK, MEMORY, Entry, InMemory
from weightctl.adapters.mooncake.master.replicas import OnLocalDisk as OnDisk
from weightctl.adapters.mooncake.master.segments import Segments
from weightctl.controller.core.observation import MemberState

STATUS = {
    "up": "OK",
    "down": "UNMOUNTING",
    "grace": "GRACEFULLY_UNMOUNTING",
    "drained": "DRAINING",
    "lot": "OK",
}


class Listed:
    """A Master that lists them, and counts how often."""

    def __init__(self) -> None:
        self.times = 0
        self.status = STATUS

    async def segments(self) -> list[Segment]:
        self.times += 1
        return [
            Segment(
                name=f"name of {name}",
                segment_id=name,
                client_id=name,
                endpoint=name,
                status=status,
                used_bytes=0,
                capacity_bytes=1,
            )
            for name, status in self.status.items()
        ]


def made(lot_at: str | None, preferred: tuple[str, ...] = ()) -> tuple[VirtualClock, Any, Segments]:
    clock, listed = VirtualClock(), Listed()
    serving: Any = listed
    return clock, listed, Segments(serving, clock, preferred, lambda: lot_at)


def at(ends: Sequence[str]) -> Entry:
    memory = [InMemory(size_bytes=7, endpoint=end, address=1) for end in ends]
    return Entry(ok=True, memory=memory, local_disk=[OnDisk(size_bytes=7, place="x")])


@pytest.mark.parametrize(
    "ends, lot_at, passes",
    [
        (["up"], None, False),
        (["down"], None, True),
        (["grace"], None, True),
        (["drained"], None, False),
        (["unknown"], None, False),
        (["down", "grace"], None, True),
        (["down", "up"], None, False),
        ([], None, False),
        (["lot"], "lot", True),
        (["lot"], None, False),
        (["lot", "down"], "lot", True),
        (["up"], "lot", False),
        (["up"], "", False),
        ([], "lot", False),
    ],
)
async def test_what_lies_only_where_it_will_soon_be_gone_is_partial_in_memory(
    ends: list[str], lot_at: str | None, passes: bool
) -> None:
    _, _, segments = made(lot_at)
    await segments.listed()
    entry = at(ends)
    assert segments.passes(entry) == passes
    there = MemberState.COMPLETE if ends else MemberState.ABSENT
    shown = MemberState.PARTIAL if passes else there
    assert segments.state_of(entry, MEMORY, 7) is shown
    assert segments.state_of(entry, LOCAL_DISK, 7) is MemberState.COMPLETE
    assert segments.state_of(entry, MEMORY, 8) is MemberState.ABSENT


async def test_new_objects_are_put_beside_the_lot_on_hosts_that_take_them() -> None:
    _, _, anywhere = made(None)
    await anywhere.listed()
    assert anywhere.next() == ""
    _, _, beside = made("lot")
    assert [one.name for one in await beside.hosts()] == ["name of up"]
    assert {beside.next() for _ in range(4)} == {"name of up"}
    _, _, named = made("lot", ("a", "b"))
    assert sorted(named.next() for _ in range(4)) == ["a", "a", "b", "b"]


async def test_what_passes_is_asked_again_after_a_moment_only() -> None:
    clock, listed, segments = made(None)
    for seconds, times in ((0.0, 1), (1.0, 1), (60.0, 2)):
        clock.jump(seconds)
        await segments.look_for_passing()
        assert listed.times == times


async def test_a_host_that_has_just_come_is_passed_over_until_it_has_told_of_its_files() -> None:
    clock, listed = VirtualClock(), Listed()
    serving: Any = listed
    segments = Segments(serving, clock, (), lambda: None, settling_s=10.0)
    await segments.listed()
    assert segments.next() == ""
    assert "up" in segments.settled(), "who was there before this process has settled"
    more = {**STATUS, "late": "OK"}
    listed.status = more
    await segments.listed()
    assert {segments.next() for _ in range(6)} == {"name of up", "name of lot"}
    assert "late" not in segments.settled()
    clock.jump(10.0)
    assert segments.next() == ""
    assert "late" in segments.settled()
    listed.status = STATUS
    await segments.listed()
    listed.status = more
    await segments.listed()
    assert "late" not in segments.settled(), "it was away in between"


async def test_where_every_host_has_just_come_the_first_is_waited_for() -> None:
    clock, listed = VirtualClock(), Listed()
    serving: Any = listed
    segments = Segments(serving, clock, (), lambda: None, settling_s=10.0)
    listed.status = {}
    await segments.listed()
    listed.status = {"late": "OK"}
    await segments.listed()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(segments.settle)
        await settle()
        await clock.advance(10.0)
    assert segments.settled() == {"late"}
