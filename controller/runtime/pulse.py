"""Whether each tier answers, and as which epoch, asked every few seconds.  Layer: runtime.

Idle revisions are looked at seldom; a tier that was emptied meanwhile, or that nobody can reach, is
noticed here.  A new epoch makes everything due soon, what is parked too, and again after ever
longer gaps, because a medium that has just come back may be filled only later.  Nothing is decided
by it: each revision is judged by a look of its own.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Never

from weightctl.controller.ports import NOT_SET_UP, Clock
from weightctl.controller.runtime.observer import Observer, Sign
from weightctl.controller.runtime.resync import Resync
from weightctl.controller.runtime.settings import ResyncOptions
from weightctl.controller.telemetry.logs import event

_LOG = logging.getLogger("weightctl.runtime")
TOLD_S = 60.0
"""A tier that comes and goes is told of at most so often."""


@dataclass(slots=True)
class _Tier:
    epoch: str = ""
    silent_s: float | None = None
    """Since when it has given no answer; monotonic."""
    told: bool = False
    """Whether this silence is in the log."""
    told_s: float = float("-inf")


class Pulse:
    """The last sign of life of each tier."""

    def __init__(
        self, observer: Observer, resync: Resync, *, clock: Clock, options: ResyncOptions
    ) -> None:
        self._observer = observer
        self._resync = resync
        self._clock = clock
        self._options = options
        self._tiers = {name: _Tier() for name in observer.tiers}
        self._look_s = float("inf")
        """When everything is looked at next on account of a new epoch."""
        self._gap_s = 0.0

    def restore(self, epochs: Mapping[str, str]) -> None:
        """Take over the durable epochs; call before the first beat."""
        for name, epoch in epochs.items():
            self._tiers[name].epoch = epoch

    async def run(self) -> Never:
        """Ask, and look anew where a tier is another one than before, again and again."""
        while True:
            await self.beat()
            await self._clock.sleep(self._options.pulse_s)

    async def beat(self) -> None:
        """Ask every tier once."""
        anew = [self._is_anew(name, sign) for name, sign in (await self._observer.pulse()).items()]
        now_s = self._clock.monotonic_s()
        if any(anew):
            self._look_s, self._gap_s = now_s, self._options.working_s
        if now_s < self._look_s:
            return
        await self._resync.look_again(self._options.working_s)
        within = self._gap_s <= self._options.published_s  # else the ordinary rounds do
        self._look_s = now_s + self._gap_s if within else float("inf")
        self._gap_s *= 2

    def _is_anew(self, name: str, sign: Sign) -> bool:
        """Take in what a tier said; whether it is not the one that it was."""
        tier = self._tiers[name]
        if sign.epoch:
            self._answers(name, tier)
            before, tier.epoch = tier.epoch, sign.epoch
            return bool(before) and before != sign.epoch
        if sign.problem and NOT_SET_UP not in sign.problem:
            self._is_silent(name, tier, sign.problem)
        return False

    def _is_silent(self, name: str, tier: _Tier, problem: str) -> None:
        now_s = self._clock.monotonic_s()
        if tier.silent_s is None:
            tier.silent_s = now_s
        if not tier.told and now_s - tier.told_s >= TOLD_S:
            tier.told, tier.told_s = True, now_s
            event(_LOG, logging.WARNING, "tier gives no answer", tier=name, problem=problem)

    def _answers(self, name: str, tier: _Tier) -> None:
        if tier.silent_s is None:
            return
        if tier.told:
            after_s = f"{self._clock.monotonic_s() - tier.silent_s:.0f}"
            event(_LOG, logging.INFO, "tier answers again", tier=name, after_s=after_s)
        tier.silent_s, tier.told = None, False
