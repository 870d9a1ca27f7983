"""What tiers tell of their media, for health and metrics.  Layer: runtime.

A tier over a medium that others run may have a report (`ports.Reporting`): who serves it, since
when nobody does, and named numbers.  Asked every few seconds, all at once, each with a deadline;
what a tier told last is shown until it tells something else.  Nothing is ever decided by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import anyio

from weightctl.controller.errors import WeightctlError
from weightctl.controller.ports import MediumReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weightctl.controller.ports import Reporting, Tier
    from weightctl.controller.runtime.timer import Timer


class Media:
    """The last report of each tier that reports."""

    def __init__(self, tiers: Iterable[Tier], *, timer: Timer, deadline_s: float) -> None:
        self._tiers = {tier.profile.name: cast("Reporting", tier) for tier in tiers if _names(tier)}
        self._timer = timer
        self._deadline_s = deadline_s
        self._reports: dict[str, MediumReport] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Every name of a number that any tier may tell."""
        return tuple(dict.fromkeys(name for tier in self._tiers.values() for name in tier.numbers))

    @property
    def reports(self) -> Mapping[str, MediumReport]:
        """By tier; without those that have told nothing yet."""
        return self._reports

    async def refresh(self) -> None:
        """Ask all of them."""
        async with anyio.create_task_group() as group:
            for name, tier in self._tiers.items():
                group.start_soon(self._ask, name, tier)

    async def _ask(self, name: str, tier: Reporting) -> None:
        told = f"no report within {self._deadline_s:g} s"
        with self._timer.deadline(self._deadline_s):
            try:
                self._reports[name] = await tier.report()
                return
            except WeightctlError as error:
                told = f"no report: {error.why or error.what}"
        last = self._reports.get(name)
        self._reports[name] = MediumReport(state=told, numbers=last.numbers if last else {})


def _names(tier: Tier) -> tuple[str, ...]:
    return tuple(getattr(tier, "numbers", ()))
