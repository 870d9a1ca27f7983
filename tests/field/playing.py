"""Plays the queue for one revision over a length of virtual time, and counts what that cost."""

from dataclasses import dataclass

from tests.support.loop_rig import IDENTITY, Rig
from weightctl.controller.core.backoff import Backoff
from weightctl.controller.core.identity import Identity
from weightctl.controller.runtime.conditions import Condition, ConditionType
from weightctl.controller.runtime.runner import Failed, Finished

PASSES_MAX = 5000


@dataclass(slots=True)
class Cost:
    """What a length of time took."""

    passes: int = 0
    """Passes that looked at the tiers."""
    writes: int = 0
    """Entries of the op-log."""


async def play(r: Rig, seconds: float, of: Identity = IDENTITY, *, wakes: bool = False) -> Cost:
    """Let passes follow each other for `seconds` as the queue would; ends early when one finishes.

    wakes: a revision's own writes make it due at once, as the store's publications do.
    """
    backoff, failures, cost = Backoff(jitter=0.0), 0, Cost()
    until_s = r.clock.monotonic_s() + seconds
    while r.clock.monotonic_s() < until_s:
        assert cost.passes < PASSES_MAX, "it passes without a pause"
        before, looked = r.store.last_sequence, _looks(r)
        following = await r.step(of)
        wrote = r.store.last_sequence - before
        cost.writes += wrote
        cost.passes += _looks(r) > looked
        if isinstance(following, Finished):
            break
        if isinstance(following, Failed):
            failures += 1
            wait_s = max(backoff.delay_s(failures, 0.0), following.at_least_s)
        else:
            failures = 0 if following.progressed else failures
            wait_s = following.after_s
        r.clock.jump(0.0 if wakes and wrote else wait_s)
    return cost


def _looks(r: Rig) -> int:
    return sum(tier.observed_count for tier in r.tiers)  # type: ignore[attr-defined]


def told(r: Rig, kind: ConditionType, of: Identity = IDENTITY) -> Condition:
    """What is said of a revision; every kind that is not said is false."""
    said = {condition.type: condition for condition in r.board.of(of)}
    silent = Condition(
        type=kind, status=False, reason="", message="", observed_generation=0, since_ms=0
    )
    return said.get(kind, silent)
