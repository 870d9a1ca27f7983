"""Idle revisions follow a tier that was emptied and filled again; a tier's silence is told once."""

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.loop_rig import IDENTITY, place, sim_tiers
from tests.support.running import Running, eventually, running
from tests.support.virtual_time import VirtualClock
from weightctl.controller.core.observation import Members, TierObservation, unknown_observation
from weightctl.controller.core.records import Availability, Operation, Residency
from weightctl.controller.ports import NOT_SET_UP
from weightctl.controller.runtime.observer import Observer
from weightctl.controller.runtime.pulse import Pulse
from weightctl.controller.runtime.resync import Resync
from weightctl.controller.runtime.settings import ResyncOptions, RuntimeSettings
from weightctl.controller.runtime.timer import Timer

SELDOM_S = 1e9
"""No test waits for a round that is this seldom."""
SETTINGS = RuntimeSettings(
    resync=ResyncOptions(working_s=5.0, published_s=SELDOM_S), park_s=SELDOM_S
)
OPTIONS = ResyncOptions(working_s=30.0, published_s=600.0)


async def becomes(r: Running, availability: Availability) -> None:
    async def there() -> bool:
        return (await r.summary())[0] is availability

    await eventually(there)


async def test_a_new_epoch_makes_idle_revisions_due_and_so_does_a_medium_that_is_filled_later(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, VirtualClock(), SETTINGS) as r:
        data = await r.publish(IDENTITY, 0)
        await r.controller.wait_converged(IDENTITY)
        r.tiers[0].wipe()
        await becomes(r, Availability.DEGRADED)
        place(r.tiers[0], IDENTITY, data)
        await becomes(r, Availability.READY)


async def test_what_is_lost_is_looked_for_long_before_it_is_parked_for_good(tmp_path: Path) -> None:
    async with running(tmp_path, VirtualClock(), SETTINGS) as r:
        data = await r.publish(IDENTITY, 1)
        await r.controller.wait_converged(IDENTITY)
        r.tiers[1].wipe(new_epoch=False)
        await r.start(Residency.HOT)

        async def lost() -> bool:
            return r.controller.health().lost == 1

        await eventually(lost)
        place(r.tiers[1], IDENTITY, data)

        async def hot() -> bool:
            return (await r.summary())[1:] == (Residency.HOT, Operation.NONE)

        await eventually(hot)


@dataclass
class Looks:
    """Stands for the resync: when everything was looked at again."""

    clock: VirtualClock
    at_s: list[float] = field(default_factory=list)

    async def look_again(self, spread_s: float) -> None:
        assert spread_s == OPTIONS.working_s
        self.at_s.append(self.clock.monotonic_s())


class Rig:
    """A pulse that a test beats."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.tier = sim_tiers()[0]
        timer = Timer(self.clock)
        observer = Observer((self.tier,), clock=self.clock, timer=timer)
        self.looks = Looks(self.clock)
        resync = cast("Resync", self.looks)
        self.pulse = Pulse(observer, resync, clock=self.clock, options=OPTIONS)

    async def beat(self, times: int = 1, every_s: float = 5.0) -> None:
        for _ in range(times):
            self.clock.jump(every_s)
            await self.pulse.beat()


async def test_looks_follow_a_new_epoch_after_gaps_that_double_up_to_the_ordinary_round() -> None:
    r = Rig()
    await r.beat(3)
    assert r.looks.at_s == []
    r.tier.epoch += 1
    await r.beat(400)
    gaps = [after - before for before, after in zip(r.looks.at_s, r.looks.at_s[1:], strict=False)]
    assert gaps == [30.0, 60.0, 120.0, 240.0, 480.0]


async def test_an_epoch_that_changed_while_no_loop_ran_is_noticed_at_the_start() -> None:
    r = Rig()
    r.pulse.restore({r.tier.profile.name: "another"})
    await r.beat()
    assert len(r.looks.at_s) == 1


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (record.levelname, record.message, getattr(record, "fields", {}))
        for record in caplog.records
        if record.message.startswith("tier ")
    ]


async def test_a_silence_is_told_once_and_its_end_with_how_long_it_was(
    caplog: pytest.LogCaptureFixture,
) -> None:
    r = Rig()
    with caplog.at_level(logging.INFO):
        await r.beat(3)
        assert told(caplog) == []
        r.tier.faults.silent = True
        await r.beat(24)
        r.tier.faults.silent = False
        await r.beat(3)
    (lost, back) = told(caplog)
    assert lost[:2] == ("WARNING", "tier gives no answer")
    assert lost[2]["problem"]
    assert back[:2] == ("INFO", "tier answers again")
    assert back[2] == {"tier": r.tier.profile.name, "after_s": "120"}


async def test_a_tier_that_comes_and_goes_is_told_of_at_most_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    r = Rig()
    with caplog.at_level(logging.INFO):
        for number in range(48):  # four minutes
            r.tier.faults.silent = number % 2 == 0
            await r.beat()
    assert [level for level, *_ in told(caplog)] == ["WARNING", "INFO"] * 4


async def test_a_medium_that_nobody_has_used_yet_is_not_told_of(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    r = Rig()

    async def unused(members: Members, **_: object) -> TierObservation:
        return unknown_observation(len(members), f"{NOT_SET_UP}: the first store sets it up")

    monkeypatch.setattr(r.tier, "observe", unused)
    with caplog.at_level(logging.INFO):
        await r.beat(3)
    assert told(caplog) == []
