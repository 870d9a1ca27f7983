"""What a tier looked like before, for answers that are some versions old.  Layer: conformance.

A version is kept per payload group whenever a look differs from the last one.  Asked for a version
that old, the answer is put together from what was seen then; members that were not seen then are
answered as they are now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weightctl.controller.core.observation import Members, ReplicaDetail, TierObservation

Seen = tuple[int, ReplicaDetail | None]
VERSIONS_MAX = 8


class PastViews:
    """The last versions of each group."""

    def __init__(self) -> None:
        self._versions: dict[str, list[dict[str, Seen]]] = {}

    def note(self, members: Members, seen: TierObservation) -> None:
        """Keep a true answer, which has the details of every member."""
        if not seen.epoch:
            return
        versions = self._versions.setdefault(members.group_id, [])
        last = versions[-1] if versions else {}
        answer: Mapping[str, Seen] = {
            key: (state, seen.details.get(index))
            for index, (key, state) in enumerate(zip(members.keys, seen.states, strict=True))
        }
        if any(last.get(key) != value for key, value in answer.items()):
            versions.append({**last, **answer})
            del versions[:-VERSIONS_MAX]

    def answer(
        self, members: Members, detail: Sequence[int], seen: TierObservation, depth: int
    ) -> TierObservation:
        """`seen` as it was `depth` versions ago."""
        versions = self._versions.get(members.group_id, [])
        then = versions[max(len(versions) - 1 - depth, 0)] if versions else {}
        states, details = bytearray(seen.states), dict(seen.details)
        for index, key in enumerate(members.keys):
            if key not in then or not seen.epoch:
                continue
            states[index], known = then[key]
            details.pop(index, None)
            if index in detail and known is not None:
                details[index] = known
        return TierObservation(states=bytes(states), epoch=seen.epoch, details=details)
