"""A clock that hurries leaves a real tier's calls their whole deadline."""

from collections.abc import Sequence

import pytest

from tests.support.virtual_time import VirtualClock
from weightctl.adapters.conformance.reference import ReferenceMedium, ReferenceTier
from weightctl.adapters.conformance.suite import haste
from weightctl.adapters.conformance.suite.haste import HASTE, HastyClock, Leisurely
from weightctl.adapters.conformance.suite.material import (
    fence,
    item_of,
    member_of,
    members_of,
)
from weightctl.controller.core.observation import Members, TierObservation


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    clock = VirtualClock()
    monkeypatch.setattr(haste, "SystemClock", lambda: clock)
    return clock


def test_it_hurries_but_for_the_time_in_which_anybody_is_at_leisure(real: VirtualClock) -> None:
    clock = HastyClock()
    real.jump(1.0)
    assert clock.monotonic_s() == pytest.approx(HASTE)
    with clock.at_leisure():
        real.jump(1.0)
        with clock.at_leisure():
            real.jump(1.0)
        real.jump(1.0)
        assert clock.monotonic_s() == pytest.approx(HASTE + 3.0)
    real.jump(1.0)
    assert clock.monotonic_s() == pytest.approx(2 * HASTE + 3.0)


async def test_calls_and_readers_of_the_tier_are_at_leisure(real: VirtualClock) -> None:
    class Slow(ReferenceTier):
        async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
            real.jump(4.0)
            return await super().observe(members, detail=detail)

    clock = HastyClock()
    async with Leisurely(Slow("slow", ReferenceMedium()), clock) as tier:
        member = member_of("payload", b"content")
        await tier.store([item_of(member, b"content")], fence())
        await tier.observe(members_of([member]))
        assert clock.monotonic_s() == pytest.approx(4.0)
        async with tier.open(member):
            real.jump(3.0)
    assert clock.monotonic_s() == pytest.approx(7.0)
