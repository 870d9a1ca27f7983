"""What would follow from a plan if every step did what it says.  Layer: core (pure).

A plan holds only what may be done on what is seen now: a copy is verified in one pass and justifies
a drop in the next.  A reviewer wants the whole way; `forecast` plans again on the states that the
steps would leave, until nothing more is to be done.  It promises nothing; the loop never acts on
it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from weightctl.controller.core.observation import MemberState
from weightctl.controller.core.plan import Plan, Situation, Step, StepKind, TierView
from weightctl.controller.core.planner import plan

if TYPE_CHECKING:
    from collections.abc import Iterable

ROUNDS_MAX = 8
"""More than the longest way (set aside, verify, store, verify, drop, finish)."""

_LEAVES = {
    StepKind.VERIFY: MemberState.VERIFIED,
    StepKind.DROP: MemberState.ABSENT,
    StepKind.QUARANTINE: MemberState.ABSENT,
}


def forecast(situation: Situation, first: Plan | None = None) -> tuple[Plan, ...]:
    """The plan for now and those that would follow; the first is `plan(situation)` itself.

    first: that plan, where it was made already.
    """
    rounds = [first or plan(situation)]
    while any(step.mask for step in rounds[-1].steps) and len(rounds) < ROUNDS_MAX:
        situation = after(situation, rounds[-1].steps)
        rounds.append(plan(situation))
    return tuple(rounds)


def after(situation: Situation, steps: Iterable[Step]) -> Situation:
    """The situation once every step has succeeded."""
    views = {view.profile.name: view for view in situation.views}
    for step in steps:
        if step.kind is StepKind.STORE:
            views[step.target] = _changed(
                views[step.target], step, MemberState.COMPLETE, -step.size_bytes
            )
        elif step.kind in _LEAVES:
            freed = step.size_bytes if step.kind is StepKind.DROP else 0
            views[step.source] = _changed(views[step.source], step, _LEAVES[step.kind], freed)
    return replace(situation, views=tuple(views.values()))


def _changed(view: TierView, step: Step, state: MemberState, freed_bytes: int) -> TierView:
    """`state` for the step's members, one big-integer expression over all of them."""
    mask = int.from_bytes(step.mask, "little")
    states = int.from_bytes(view.states, "little") & ~(mask * 0xFF) | mask * state
    capacity = view.capacity
    if capacity is not None:
        capacity = replace(capacity, free_bytes=capacity.free_bytes + freed_bytes)
    return replace(view, states=states.to_bytes(len(view.states), "little"), capacity=capacity)
