"""The end of a deletion: leftovers, proof of absence, tombstone.  Layer: runtime (invariant 3).

Every tier must have answered the pass's observation with ABSENT for every member, and must list
nothing of the group any more: no quarantined copy, no writer's leftover, no unknown object.  Only
then is DELETED written.
"""

from weightctl.controller.core.observation import MemberState
from weightctl.controller.core.records import RevisionMetadata
from weightctl.controller.errors import BusyError, TransientError, UnknownOutcomeError, require
from weightctl.controller.runtime.dispatch import Pass
from weightctl.controller.runtime.executor import Executor
from weightctl.controller.runtime.observer import Observer
from weightctl.controller.runtime.survey import Answer
from weightctl.controller.store.store import WeightMetadataStore

_ITEMS_MAX = 1024


class Deletion:
    """Finishes deletions."""

    def __init__(self, store: WeightMetadataStore, observer: Observer, executor: Executor) -> None:
        self._store = store
        self._observer = observer
        self._executor = executor

    async def finish(self, record: RevisionMetadata, answer: Answer) -> int:
        """Sweep leftovers, or write the tombstone when there are none; gives their number.

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
                await self._executor.remover.sweep(work, name, items[:_ITEMS_MAX])
        self._raise_held(work)
        return found

    def _raise_held(self, work: Pass) -> None:
        tally = work.tally
        if tally.changed or not (tally.failures or tally.busy or tally.permanent):
            return
        what, why = f"leftovers of {work.record.identity}", "; ".join(tally.details)
        if tally.busy and not tally.failures:
            raise BusyError(tally.busy_until_ms, what, why, "wait until they are released")
        raise TransientError(what, why, "the next pass tries again")
