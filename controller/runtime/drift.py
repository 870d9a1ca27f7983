"""Cheap visits to idle published revisions.  Layer: runtime.

For each converged revision one number per tier is kept: a hash of what was seen.  A visit compares
a new look with it and names the key only when something differs, so a round over a hundred thousand
unchanged revisions neither plans nor queues anything.  Tiers are asked in slices, one task per tier
and slice, none per revision or member.
"""

from collections.abc import Iterable, Sequence

from weightctl.controller.core.identity import Identity
from weightctl.controller.core.observation import Members, MemberState
from weightctl.controller.core.records import Availability, Operation, RevisionMetadata
from weightctl.controller.runtime.observer import Observer, Seen

REVISIONS_MAX = 200_000
_PART = 8
_PUBLISHED = (Availability.READY, Availability.DEGRADED)
_RAW = bytes(min(state, MemberState.COMPLETE) for state in range(256))
"""Evidence is not part of what a tier answers."""


def is_idle(record: RevisionMetadata) -> bool:
    """Published, and no operation runs."""
    return record.availability in _PUBLISHED and record.operation is Operation.NONE


def _generation(record: RevisionMetadata) -> bytes:
    return record.metadata_generation.to_bytes(_PART, "little")


def _look(states: bytes) -> bytes:
    return hash(states).to_bytes(_PART, "little", signed=True)


class DriftWatch:
    """What converged revisions looked like."""

    def __init__(self, observer: Observer, *, revisions_max: int = REVISIONS_MAX) -> None:
        self._observer = observer
        self._revisions_max = revisions_max
        self._known: dict[Identity, bytes] = {}
        """Generation, then the look of each tier, eight bytes each."""

    def remember(self, record: RevisionMetadata, seen: Seen) -> None:
        """The revision has converged and looks like this; only kept when every tier answered."""
        if not all(seen.epochs.values()):
            self._known.pop(record.identity, None)
            return
        if record.identity not in self._known and len(self._known) >= self._revisions_max:
            del self._known[next(iter(self._known))]
        looks = [_look(view.states.translate(_RAW)) for view in seen.views]
        self._known[record.identity] = b"".join((_generation(record), *looks))

    def forget(self, identity: Identity) -> None:
        """The revision is being worked on, or gone."""
        self._known.pop(identity, None)

    def unknown(self, records: Iterable[RevisionMetadata]) -> list[RevisionMetadata]:
        """The records whose look is not known as they are now: these need a whole pass."""
        return [
            record
            for record in records
            if (known := self._known.get(record.identity)) is None
            or known[:_PART] != _generation(record)
        ]

    async def changed(
        self, records: Sequence[RevisionMetadata], groups: Sequence[Members]
    ) -> list[Identity]:
        """Which of these known revisions look different now.

        groups: the members of each record, in the same order.  A tier that does not answer says
        nothing: its part is not compared.
        """
        answers = await self._observer.sweep(groups)
        differing = []
        for position, record in enumerate(records):
            known = self._known.get(record.identity, b"")
            for number, states in enumerate(answers, 1):
                start = number * _PART
                if position >= len(states):
                    continue
                if known[start : start + _PART] != _look(states[position]):
                    differing.append(record.identity)
                    break
        return differing
