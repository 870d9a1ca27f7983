"""What tiers tell of their media reaches health and metrics, whatever a plugin answers."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import anyio
import pytest

from weightctl.adapters.conformance.reference import ReferenceMedium, ReferenceTier
from weightctl.controller.clock import SystemClock
from weightctl.controller.errors import TransientError
from weightctl.controller.ports import MediumReport, Reporting, Tier
from weightctl.controller.runtime.border import BorderedTier
from weightctl.controller.runtime.media import Media
from weightctl.controller.runtime.timer import Timer
from weightctl.controller.telemetry.metrics import LoopMetrics

GOOD = MediumReport(state="leader a:1 serves", numbers={"serving": 1, "calls": 7.0})
SOON_S = 0.05
PATIENCE_S = 240.0


class Telling(ReferenceTier):
    """A tier that reports as it is told to."""

    def __init__(
        self, answer: Callable[[], Awaitable[Any]], numbers: Sequence[str] = ("serving", "calls")
    ) -> None:
        super().__init__("telling", ReferenceMedium())
        self._answer = answer
        self.numbers = numbers

    async def report(self) -> MediumReport:
        return cast("MediumReport", await self._answer())


async def good() -> MediumReport:
    return GOOD


async def away() -> MediumReport:
    raise TransientError("the medium", "it is away")


async def broken() -> MediumReport:
    raise ZeroDivisionError


def bordered(tier: Tier) -> BorderedTier:
    return BorderedTier(tier, tier.profile, SystemClock())


async def told(*tiers: Tier, deadline_s: float = PATIENCE_S) -> Media:
    """After all tiers were asked once."""
    timer = Timer(SystemClock())
    media = Media(tiers, timer=timer, deadline_s=deadline_s)
    async with anyio.create_task_group() as group:
        group.start_soon(timer.run)
        with anyio.fail_after(PATIENCE_S):
            await media.refresh()
        group.cancel_scope.cancel()
    return media


async def test_a_report_is_shown_as_it_was_told() -> None:
    media = await told(bordered(Telling(good)), bordered(ReferenceTier("dumb", ReferenceMedium())))
    assert media.reports == {"telling": GOOD}
    assert media.names == ("serving", "calls")


@pytest.mark.parametrize(
    "answer",
    [
        away,
        broken,
        lambda: good_with(serving="yes"),
        lambda: good_with(serving=True),
        lambda: other(None),
    ],
)
async def test_a_report_that_is_none_is_told_and_the_last_numbers_stay(
    answer: Callable[[], Awaitable[Any]],
) -> None:
    tier = Telling(good)
    media = await told(bordered(tier))
    tier._answer = answer
    await media.refresh()
    assert media.reports["telling"].numbers == GOOD.numbers
    assert media.reports["telling"].state.startswith("no report: ")


async def good_with(**numbers: object) -> MediumReport:
    return MediumReport(numbers=cast("dict[str, float]", numbers))


async def other(answer: object) -> object:
    return answer


async def test_a_tier_that_hangs_costs_a_deadline_and_hides_no_other() -> None:
    quick = Telling(good)
    slow = Telling(anyio.sleep_forever)
    slow.profile = type(slow.profile)(name="slow", kind="reference", hot=False)
    media = await told(bordered(slow), bordered(quick), deadline_s=SOON_S)
    assert media.reports["telling"].state in (GOOD.state, f"no report within {SOON_S} s")
    assert media.reports["slow"].state == f"no report within {SOON_S} s"


async def test_what_was_not_declared_is_no_number() -> None:
    media = await told(bordered(Telling(good, ["calls"])))
    assert media.reports["telling"].numbers == {"calls": 7.0}


@pytest.mark.parametrize("names", [["a b"], ["x" * 65], [1], ["n"] * 65, "serving", None])
async def test_names_that_are_no_short_words_are_no_names(names: Any) -> None:
    media = await told(bordered(Telling(good, names)))
    assert media.names == ()
    assert not media.reports


def test_the_numbers_of_media_are_series_from_the_start() -> None:
    metrics = LoopMetrics(("memory", "disk"), ("serving", "calls"))
    metrics.medium.set(7, "memory", "calls")
    values = {
        (sample.labels["tier"], sample.labels["number"]): sample.value
        for sample in metrics.samples()
        if sample.name == "weightctl_tier_medium"
    }
    assert values[("memory", "calls")] == 7
    assert values[("disk", "serving")] == 0


def test_more_numbers_than_there_may_be_series_stop_no_controller() -> None:
    metrics = LoopMetrics([f"t{n}" for n in range(40)], [f"n{n}" for n in range(64)])
    metrics.medium.set(1, "t0", "n63")


def test_a_mooncake_tier_has_all_that_reporting_needs() -> None:
    from weightctl.adapters.mooncake.standing import NUMBERS  # noqa: PLC0415
    from weightctl.adapters.mooncake.tier import MooncakeTier  # noqa: PLC0415
    from weightctl.controller.runtime.answers import names_in  # noqa: PLC0415

    assert names_in(NUMBERS) == list(NUMBERS)
    assert {"numbers", "report"} <= set(dir(MooncakeTier)) & set(dir(Reporting))
