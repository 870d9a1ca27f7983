"""The end of a deletion: leftovers, proof of absence, tombstone.  Layer: runtime (invariant 3).

Every tier must have answered the pass's observation with ABSENT for every member, and must list
nothing of the group any more: no quarantined copy, no writer's leftover, no unknown object.  Only
then is DELETED written.  A tier whose lists may be behind must list nothing for as long as the
policy lets things settle.
"""

from weightctl.controller.core.observation import MemberState
from weightctl.controller.core.records import RevisionMetadata
from weightctl.controller.errors import BusyError, TransientError, UnknownOutcomeError, require
from weightctl.controller.ports import Clock
from weightctl.controller.runtime.dispatch import Pass
from weightctl.controller.runtime.executor import Executor
from weightctl.controller.runtime.observer import Observer
from weightctl.controller.runtime.survey import Answer
from weightctl.controller.store.store import WeightMetadataStore

_ITEMS_MAX = 1024


class Deletion:
    """Finishes deletions."""

    def __init__(
        self, store: WeightMetadataStore, observer: Observer, executor: Executor, clock: Clock
    ) -> None:
        self._store = store
        self._observer = observer
        self._executor = executor
        self._clock = clock
        self._empty_since_s: dict[tuple[str, str], float] = {}
        """By tier and group: since when an inconsistent list has been empty."""

    async def finish(self, record: RevisionMetadata, answer: Answer) -> int:
        """Sweep leftovers, or write the tombstone when there are none; gives their number.

        A list that may be behind counts as a leftover.
        Raises a ReconcileError when a tier cannot say what it holds or does not let go of it.
        """
        self._require_absence(record, answer)
        work = self._executor.begin(answer.situation, answer.seen)
        if leftovers := await self._sweep(work):
            return leftovers
        await self._store.finish_delete(
            identity=record.identity, expected_metadata_generation=record.metadata_generation
        )
        self._observer.forget_group(record.manifest.payload_group_id)
        for name in self._observer.tiers:
            self._empty_since_s.pop((name, record.manifest.payload_group_id), None)
        return 0

    def _require_absence(self, record: RevisionMetadata, answer: Answer) -> None:
        for view in answer.seen.views:
            what = f"absence of {record.identity} in {view.profile.name}"
            absent = view.states.count(MemberState.ABSENT)
            require(absent == len(view.states), what, "it was not observed")
            if not answer.seen.epochs[view.profile.name]:
                raise UnknownOutcomeError(what, view.problem, "the next pass asks again")

    async def _sweep(self, work: Pass) -> int:
        """Remove what the tiers list of the group; how much there was."""
        found = 0
        consistent = {
            view.profile.name: view.profile.capabilities.list_is_consistent
            for view in work.seen.views
        }
        for name in self._observer.tiers:
            items = await self._observer.list_group(name, work.members.group_id)
            if items is None:
                raise UnknownOutcomeError(
                    f"inventory of {name} for {work.record.identity}",
                    self._observer.problems()[name],
                    "the deletion goes on when the tier answers",
                )
            if items:
                found += len(items)
                self._empty_since_s.pop((name, work.members.group_id), None)
                await self._executor.remover.sweep(work, name, items[:_ITEMS_MAX])
            elif not consistent[name]:
                found += self._may_be_behind(work, name)
        self._raise_held(work)
        return found

    def _may_be_behind(self, work: Pass, tier: str) -> bool:
        """Whether an empty list may be one of before the last writes came in."""
        now_s = self._clock.monotonic_s()
        since_s = self._empty_since_s.setdefault((tier, work.members.group_id), now_s)
        return now_s - since_s < work.situation.policy.settle_s

    def _raise_held(self, work: Pass) -> None:
        tally = work.tally
        if tally.changed or not (tally.failures or tally.busy or tally.permanent):
            return
        what, why = f"leftovers of {work.record.identity}", "; ".join(tally.details)
        if tally.busy and not tally.failures:
            raise BusyError(tally.busy_until_ms, what, why, "wait until they are released")
        raise TransientError(what, why, "the next pass tries again")
