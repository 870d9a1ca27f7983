"""Looks at the tiers.  Layer: runtime.

Asks all tiers at the same time, each with a deadline.  A tier that hangs, raises or answers for the
wrong number of members is UNKNOWN with a problem; one that missed its deadline is left alone for a
while, so that it costs the passes nothing.  Looking changes nothing in any tier.
"""

from array import array
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import anyio

from weightctl.controller.core.backoff import Backoff
from weightctl.controller.core.damage import DamagedReplica, Suspects, mark_damaged, suspects
from weightctl.controller.core.observation import (
    Members,
    MemberState,
    TierObservation,
    unknown_observation,
)
from weightctl.controller.core.plan import TierView
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.tiers import TierCapacity
from weightctl.controller.errors import InvariantViolationError, WeightctlError
from weightctl.controller.ports import Clock, InventoryItem, Tier
from weightctl.controller.runtime.border import complaint_of
from weightctl.controller.runtime.evidence import EvidenceBook
from weightctl.controller.runtime.failures import FailureBook
from weightctl.controller.runtime.settling import SettleGate
from weightctl.controller.runtime.timer import Timer

T = TypeVar("T")

_ANSWERS = bytes(state > MemberState.COMPLETE for state in range(256))
_SILENCE = Backoff(base_s=1.0, max_s=60.0, jitter=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserverOptions:
    """How long a tier may take to answer, and how long a capacity stays current."""

    deadline_s: float = 5.0
    capacity_age_s: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One observation of a group in all tiers, evidence merged in."""

    members: Members
    views: tuple[TierView, ...]
    epochs: Mapping[str, str]
    """By tier; empty for one that gave no answer."""
    refuted: tuple[DamagedReplica, ...] = ()
    """Known damage that is not there any more: another copy, or another epoch, is."""

    def states(self, tier: str) -> bytes:
        """One byte a member in that tier."""
        return next(view.states for view in self.views if view.profile.name == tier)


def subset(members: Members, indexes: Sequence[int]) -> Members:
    """The members at `indexes`, ascending, as a group of their own."""
    return Members(
        group_id=members.group_id,
        keys=[members.keys[index] for index in indexes],
        sizes_bytes=array("Q", [members.sizes_bytes[index] for index in indexes]),
        sha256=b"".join(members.digest(index) for index in indexes),
        data_types=bytes(members.data_types[index] for index in indexes),
    )


class Sign(NamedTuple):
    """A tier's sign of life: its epoch, empty where it gave none, and then why."""

    epoch: str
    problem: str


_NO_GROUP = "weight:" + "0" * 64
_NOBODY = Members(group_id=_NO_GROUP, keys=(), sizes_bytes=array("Q"), sha256=b"", data_types=b"")


class _Answer(NamedTuple):
    """What one tier answered, and when it was asked."""

    observation: TierObservation
    capacity: TierCapacity | None
    asked_s: float


class _Line:
    """The connection to one tier: its silence and its last known capacity."""

    def __init__(self, tier: Tier) -> None:
        self.tier = tier
        self.name = tier.profile.name
        self.misses = 0
        self.silent_until_s = float("-inf")
        self.problem = ""
        self.capacity: TierCapacity | None = None
        self.capacity_at_s = float("-inf")


class Observer:
    """Fan-out over the tiers, with the evidence and the settle gate applied."""

    def __init__(
        self,
        tiers: Sequence[Tier],
        *,
        clock: Clock,
        timer: Timer,
        options: ObserverOptions | None = None,
    ) -> None:
        self._clock = clock
        self._timer = timer
        self._options = options or ObserverOptions()
        self._lines = {tier.profile.name: _Line(tier) for tier in tiers}
        self.evidence = EvidenceBook(clock)
        self.failures = FailureBook(clock)
        self.gate = SettleGate(clock)

    @property
    def tiers(self) -> Mapping[str, Tier]:
        """The tiers by name."""
        return {name: line.tier for name, line in self._lines.items()}

    def problems(self) -> Mapping[str, str]:
        """By tier: why its last answer was none, or what it did wrong; empty when all is well."""
        return {name: line.problem or complaint_of(line.tier) for name, line in self._lines.items()}

    async def observe(
        self,
        members: Members,
        policy: Policy,
        *,
        damage: Sequence[DamagedReplica] = (),
        with_capacity: bool = True,
    ) -> Seen:
        """Every tier's view of the whole group; never raises for a tier.

        damage: what is known of it; those members are looked at in detail, so that a verdict only
        ever counts against the copy that was read.
        """
        suspected = suspects(damage, members) if damage else {}
        answers: dict[str, _Answer] = {}

        async def ask(line: _Line) -> None:
            detail = tuple(suspected.get(line.name, ()))
            asked_s = self._clock.monotonic_s()
            observation = await self._ask(line, members, detail)
            capacity = await self._capacity(line) if with_capacity else None
            answers[line.name] = _Answer(observation, capacity, asked_s)

        await self._all_lines(ask)
        refuted: list[DamagedReplica] = []
        views = []
        for name, line in self._lines.items():
            view = self._view(line, members, policy, answers[name])
            if name in suspected:
                view = _marked(view, answers[name].observation, suspected[name], refuted)
            views.append(view)
        epochs = {name: answer.observation.epoch for name, answer in answers.items()}
        return Seen(members=members, views=tuple(views), epochs=epochs, refuted=tuple(refuted))

    async def look(self, tier: str, members: Members, indexes: Sequence[int]) -> TierObservation:
        """A fresh, detailed look at a few members; `details` are by position in `indexes`."""
        return await self._ask(
            self._lines[tier], subset(members, indexes), detail=range(len(indexes))
        )

    async def pulse(self) -> Mapping[str, Sign]:
        """By tier, whether it answers and as which epoch; asks it for no member at all."""
        signs: dict[str, Sign] = {}

        async def ask(line: _Line) -> None:
            observation = await self._call(line, lambda: line.tier.observe(_NOBODY))
            if observation is not None:
                line.problem = observation.problem
            epoch = "" if observation is None else observation.epoch
            signs[line.name] = Sign(epoch, line.problem)

        await self._all_lines(ask)
        return signs

    async def sweep(self, groups: Sequence[Members]) -> list[list[bytes]]:
        """Raw states of many groups: per tier, in the tiers' order, the states of each group.

        A tier that fails or gets slow answers for the first so many groups only.
        """
        answers: list[list[bytes]] = [[] for _ in self._lines]

        async def ask(line: _Line, states: list[bytes]) -> None:
            until_s = self._clock.monotonic_s() + self._options.deadline_s / 2

            async def each() -> None:
                for members in groups:
                    observation = await line.tier.observe(members)
                    if _flaw(observation, len(members)) or not observation.epoch:
                        return
                    states.append(observation.states)
                    if self._clock.monotonic_s() > until_s:
                        return

            await self._call(line, each)

        numbers = {name: number for number, name in enumerate(self._lines)}
        await self._all_lines(lambda line: ask(line, answers[numbers[line.name]]))
        return answers

    async def _all_lines(self, ask: Callable[[_Line], Coroutine[None, None, None]]) -> None:
        """Ask all tiers at once; one of them from this task, because a task has its price."""
        lines = tuple(self._lines.values())
        async with anyio.create_task_group() as group:
            for line in lines[1:]:
                group.start_soon(ask, line)
            for line in lines[:1]:
                await ask(line)

    async def list_group(self, tier: str, group_id: str) -> Sequence[InventoryItem] | None:
        """Everything that a tier holds of a group; None when it could not be listed wholly."""
        line = self._lines[tier]
        listed = await self._call(line, lambda: line.tier.inventory(group_id))
        return None if listed is None else listed.get(group_id, ())

    def capacity_changed(self, tier: str) -> None:
        """Something was stored or dropped: the next observation reads the capacity anew."""
        self._lines[tier].capacity_at_s = float("-inf")

    def forget_group(self, group_id: str) -> None:
        """Drop what is remembered of a group that is gone."""
        self.evidence.forget_group(group_id, self._lines)
        self.failures.forget_group(group_id, self._lines)
        self.gate.forget_group(group_id, self._lines)

    def _view(
        self,
        line: _Line,
        members: Members,
        policy: Policy,
        answer: _Answer,
    ) -> TierView:
        observation, capacity, asked_s = answer
        settles_in_s = self.gate.judge(
            line.name, members.group_id, observation, policy, asked_s=asked_s
        )
        states = self.evidence.merge(
            line.name,
            members.group_id,
            observation.states,
            observation.epoch,
            policy.evidence_max_age_s,
        )
        settles_at_ms = None
        if settles_in_s is not None:
            settles_at_ms = self._clock.wall_ms() + int(settles_in_s * 1000) + 1
        return TierView(
            profile=line.tier.profile,
            states=states,
            capacity=capacity,
            settled=settles_in_s is None,
            settles_at_ms=settles_at_ms,
            problem=observation.problem,
            failures=self.failures.counts(line.name, members.group_id, len(members)),
        )

    async def _ask(
        self, line: _Line, members: Members, detail: Sequence[int] = ()
    ) -> TierObservation:
        count = len(members)
        observation = await self._call(line, lambda: line.tier.observe(members, detail=detail))
        if observation is None:
            return unknown_observation(count, line.problem)
        problem = _flaw(observation, count)
        line.problem = problem or observation.problem
        return unknown_observation(count, problem) if problem else observation

    async def _capacity(self, line: _Line) -> TierCapacity | None:
        now_s = self._clock.monotonic_s()
        if now_s - line.capacity_at_s >= self._options.capacity_age_s:
            line.capacity = await self._call(line, line.tier.capacity)
            line.capacity_at_s = now_s
        return line.capacity

    async def _call(self, line: _Line, call: Callable[[], Awaitable[T]]) -> T | None:
        """The tier's answer, or None with the line's problem set."""
        now_s = self._clock.monotonic_s()
        if now_s < line.silent_until_s:
            return None
        if line.misses:  # one asks whether it is back; the others do not wait for that
            line.silent_until_s = now_s + self._options.deadline_s
        answer: T | None = None
        late = True
        try:
            with self._timer.deadline(self._options.deadline_s):
                answer = await call()
                late = False
        except InvariantViolationError:
            raise
        except Exception as error:  # noqa: BLE001 - a tier's bug must not look like an answer
            line.problem = _told(error)
            late = False
        if late:
            self._missed(line)
        else:
            line.misses = 0
            line.silent_until_s = float("-inf")
        return answer

    def _missed(self, line: _Line) -> None:
        line.misses += 1
        pause_s = _SILENCE.delay_s(line.misses, 0.0)
        line.silent_until_s = self._clock.monotonic_s() + pause_s
        line.problem = f"no answer within {self._options.deadline_s:g} s, {line.misses} in a row"


def _marked(
    view: TierView,
    observation: TierObservation,
    suspected: Suspects,
    refuted: list[DamagedReplica],
) -> TierView:
    """The view with CORRUPT where a damaged copy lies; adds what is refuted."""
    states, gone = mark_damaged(view.states, observation, suspected)
    refuted += gone
    return replace(view, states=states)


def _told(error: Exception) -> str:
    if isinstance(error, WeightctlError):
        return f"{error.reason}: {error.what}"
    return f"untranslated {type(error).__name__}: {error}"


def _flaw(observation: TierObservation, count: int) -> str:
    """Why an answer cannot be used; empty when it can."""
    if len(observation.states) != count:
        return f"answered {len(observation.states)} of {count} members"
    if 1 in observation.states.translate(_ANSWERS):
        return "answered with a state that is no observation"
    if not observation.epoch and observation.states.count(MemberState.UNKNOWN) != count:
        return "answered without an epoch"
    return ""
