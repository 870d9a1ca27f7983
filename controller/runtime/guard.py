"""Repairs that the loop starts by itself, where the policy says so.  Layer: runtime.

Somebody removes a managed object through the store's own interface, a medium is replaced, a host
never comes back: the pass that sees it hands the revision to the guard, which looks once more and
starts an ordinary repair towards cold copies.  Invariant: it only ever adds replicas, never fills
memory, never starts on what a tier did not answer or nothing can be read of, and starts a revision
again only after a pause, whatever became of the first repair.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Never

import anyio

from weightctl.controller.core.aggregate import readable_mask
from weightctl.controller.core.identity import Identity
from weightctl.controller.core.losses import lost_keys
from weightctl.controller.core.observation import MemberState
from weightctl.controller.core.plan import Situation
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Residency
from weightctl.controller.errors import WeightctlError
from weightctl.controller.ports import Clock
from weightctl.controller.runtime.drift import is_idle
from weightctl.controller.runtime.reconciler import PassReport
from weightctl.controller.runtime.survey import Answer
from weightctl.controller.store.store import WeightMetadataStore
from weightctl.controller.telemetry.logs import event

_LOG = logging.getLogger("weightctl.runtime")

PAUSE_S = 300.0
"""Between two repairs of one revision that the guard starts: copies may be short for good."""
WAITING_MAX = 10_000


class Guard:
    """Starts repairs of idle revisions that have too few cold copies."""

    def __init__(
        self,
        store: WeightMetadataStore,
        ask: Callable[[Identity], Awaitable[Answer]],
        *,
        clock: Clock,
        policy: Callable[[], Policy],
    ) -> None:
        self._store = store
        self._ask = ask
        self._clock = clock
        self._policy = policy
        self._waiting: dict[Identity, None] = {}
        self._started_s: dict[Identity, float] = {}
        self._wake = anyio.Event()

    def note(self, report: PassReport) -> None:
        """A pass has ended; an idle revision that was planned anew is looked at."""
        if self._policy().auto_repair and report.plan is not None and is_idle(report.record):
            if len(self._waiting) < WAITING_MAX:  # the next change or round brings it again
                self._waiting[report.identity] = None
            self._wake.set()

    async def run(self) -> Never:
        """Look at what was noted, one revision after the other."""
        while True:
            while self._waiting:
                identity = next(iter(self._waiting))
                del self._waiting[identity]
                await self._look(identity)
            await self._wake.wait()
            self._wake = anyio.Event()

    async def _look(self, identity: Identity) -> None:
        now_s = self._clock.monotonic_s()
        self._started_s = {of: at for of, at in self._started_s.items() if now_s - at < PAUSE_S}
        if identity in self._started_s:
            return
        try:
            situation = (await self._ask(identity)).situation
            if not self._policy().auto_repair or not copies_short(situation):
                return
            self._started_s[identity] = now_s
            await self._store.start_repair(
                identity=identity,
                expected_metadata_generation=situation.record.metadata_generation,
                target_residency=Residency.COLD,
                member_count=len(situation.members),
                copies_short=True,
            )
        except WeightctlError as error:  # it has moved on, or cannot be changed now
            event(_LOG, logging.INFO, "no repair was started", error=error, revision=identity)
        else:
            event(_LOG, logging.WARNING, "repair started by the guard", revision=identity)


def copies_short(situation: Situation) -> bool:
    """Whether a repair would have a cold copy to add; False while any tier leaves it open, and
    where a member is lost, because the repair could not end.
    """
    cold = [view for view in situation.views if not view.profile.hot]
    if not is_idle(situation.record) or any(
        MemberState.UNKNOWN in view.states or MemberState.PARTIAL in view.states for view in cold
    ):
        return False
    if lost_keys(situation):
        return False
    takers = sum(not view.profile.capabilities.observe_only for view in cold)
    wanted = min(situation.policy.cold_copies, takers)
    copies = [readable_mask(view.states) for view in cold]
    hot = [readable_mask(view.states) for view in situation.views if view.profile.hot]
    return any(
        sum(found) < wanted and (any(found) or any(mask[index] for mask in hot))
        for index, found in enumerate(zip(*copies, strict=True))
    )
