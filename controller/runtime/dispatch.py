"""Sends one batch to a tier, for as long as the pass acts for the current record.  Layer: runtime.

Owns what every primitive needs: a place at each tier that it touches, the fence checked after any
wait for that place and directly before the call, a deadline, and one outcome for each asked item.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from weightctl.controller.core.observation import Members
from weightctl.controller.core.plan import Situation, Step
from weightctl.controller.core.records import Availability, Operation, RevisionMetadata
from weightctl.controller.errors import FencedError, InvariantViolationError
from weightctl.controller.ports import Clock, Fence, Outcome, Tier, Unknown
from weightctl.controller.runtime.admission import Admission, Ticket, TierLimits, WorkClass
from weightctl.controller.runtime.limits import JointLimiter, TokenBucket
from weightctl.controller.runtime.observer import Observer, Seen
from weightctl.controller.runtime.outcomes import Tally, complete, outcome_of
from weightctl.controller.runtime.settings import ExecutorOptions
from weightctl.controller.runtime.timer import Timer
from weightctl.controller.store.store import WeightMetadataStore

_CLASSES: Mapping[Operation, WorkClass] = {
    Operation.EVICTING: WorkClass.EVICT,
    Operation.REHYDRATING: WorkClass.REHYDRATE,
    Operation.REPAIRING: WorkClass.REPAIR,
}


@dataclass(slots=True, kw_only=True)
class Pass:
    """What one pass acts on, and what became of it."""

    situation: Situation
    seen: Seen
    fence: Fence
    members_left: int
    bytes_left: int
    tally: Tally = field(default_factory=Tally)
    stopped: Exception | None = None
    """Why nothing more may be started."""

    @property
    def record(self) -> RevisionMetadata:
        """The record that the pass acts for."""
        return self.situation.record

    @property
    def members(self) -> Members:
        """The group's members."""
        return self.situation.members

    @property
    def work_class(self) -> WorkClass:
        """What the pass's batches are for; a revision that is idle has none."""
        if self.record.availability is Availability.DELETING:
            return WorkClass.DELETE
        return _CLASSES[self.record.operation]

    def count(self, step: Step, indexes: Sequence[int], outcomes: Sequence[Outcome]) -> None:
        """Add the outcomes of a batch of a step to the tally."""
        place = f"{step.source} to {step.target}" if step.target else step.source
        for index, outcome in zip(indexes, outcomes, strict=True):
            self.tally.add(outcome, f"{self.members.keys[index]} ({place})")


class Dispatch:
    """The way of every batch to its tier."""

    def __init__(
        self,
        observer: Observer,
        store: WeightMetadataStore,
        *,
        clock: Clock,
        timer: Timer,
        options: ExecutorOptions,
        limits: Mapping[str, TierLimits],
    ) -> None:
        self.observer = observer
        self.store = store
        self.clock = clock
        self.options = options
        self._timer = timer
        self.admission = Admission(tuple(observer.tiers), limits)
        self.buckets = {
            name: TokenBucket(clock, limits.get(name, TierLimits()).bandwidth_bytes_per_s)
            for name in observer.tiers
        }

    def tier(self, name: str) -> Tier:
        """A tier by name."""
        return self.observer.tiers[name]

    def limiter(self, *tiers: str) -> JointLimiter:
        """The bandwidth of all ends of a transfer."""
        return JointLimiter([self.buckets[name] for name in tiers])

    def set_limits(self, limits: Mapping[str, TierLimits]) -> None:
        """Replace limits while running."""
        self.admission.set_limits(limits)
        for name, limit in limits.items():
            self.buckets[name].set_rate(limit.bandwidth_bytes_per_s)

    def note_failed(self, work: Pass, failures: Iterable[tuple[str, int, int]]) -> None:
        """Note (tier, member index, weight) of what failed there, for the next plan."""
        alike: dict[tuple[str, int], list[int]] = {}
        for tier, index, weight in failures:
            alike.setdefault((tier, weight), []).append(index)
        book, members = self.observer.failures, work.members
        for (tier, weight), indexes in alike.items():
            work.tally.first_failures += book.failed(
                tier, members.group_id, len(members), indexes, weight
            )

    async def check_fence(self, work: Pass) -> None:
        """Raise FencedError unless the pass still acts for the current record and term."""
        view = await self.store.get(identity=work.record.identity)
        now, fence = view.metadata, work.fence
        current = (self.store.holder, self.store.term, now.operation_id, now.metadata_generation)
        if current != (fence.holder, fence.term, fence.operation_id, fence.generation):
            raise FencedError(
                f"the pass over {work.record.identity}",
                f"it acts for generation {fence.generation} of operation {fence.operation_id};"
                f" now it is {now.metadata_generation} of {now.operation_id}",
                "nothing: the next pass reads the record again",
            )

    def ticket(
        self, work: Pass, tiers: Sequence[str], size_bytes: int, work_class: WorkClass | None = None
    ) -> Ticket:
        """What a batch of this pass asks for."""
        return Ticket(
            work_class=work_class or work.work_class,
            owner=work.members.group_id,
            tiers=tuple(dict.fromkeys(tiers)),
            size_bytes=size_bytes,
        )

    async def send(
        self,
        work: Pass,
        ticket: Ticket,
        asked: int,
        call: Callable[[], Awaitable[Sequence[Outcome]]],
    ) -> list[Outcome]:
        """The outcome of each of the `asked` items.  Raises FencedError before calling."""
        async with self.admission.place(ticket):
            await self.check_fence(work)
            deadline_s = self._deadline_s(ticket)
            outcomes: list[Outcome] = [Unknown(detail=f"no answer within {deadline_s:.0f} s")]
            outcomes *= asked
            try:
                with self._timer.deadline(deadline_s):
                    outcomes = complete(await call(), asked)
            except InvariantViolationError:
                raise
            except Exception as error:  # noqa: BLE001 - an error of a batch is one of its items
                outcomes = [outcome_of(error)] * asked
            return outcomes

    def _deadline_s(self, ticket: Ticket) -> float:
        rates = [self.options.slowest_bytes_per_s]
        for name in ticket.tiers:
            load, _ = self.admission.in_flight(name)
            limit = self.buckets[name].rate_bytes_per_s
            if limit is not None:
                rates.append(limit / max(load, 1))
        return self.options.deadline_s + 2 * ticket.size_bytes / max(min(rates), 1.0)
