"""Partial files whose writers no lock here can tell of.  Layer: a tier; pure.

A writer on another host may be slow or dead.  It counts as dead when its file has been seen twice,
a grace apart on this host's monotonic clock, and nothing has changed in between: no clock of
another host or of the medium is believed.  Memory is bounded; forgetting only prolongs a grace.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weightctl.adapters.dfs.writers import Stranger

REMEMBERED_MAX = 10_000


@dataclass(slots=True)
class _Sighting:
    size_bytes: int
    changed_ns: int
    first_s: float
    last_s: float


class Strangers:
    """What was seen of them, by instance id."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._seen: OrderedDict[str, _Sighting] = OrderedDict()

    def see(self, strangers: Iterable[Stranger], now_s: float) -> set[int]:
        """Remember them; the indexes of members all of whose partial files are dead."""
        dead: dict[int, bool] = {}
        for stranger in strangers:
            still = self._see_one(stranger, now_s)
            dead[stranger.index] = dead.get(stranger.index, True) and still
        return {index for index, still in dead.items() if still}

    def still(self) -> frozenset[str]:
        """Instances that may be removed."""
        return frozenset(
            instance for instance, sighting in self._seen.items() if self._is_still(sighting)
        )

    def _see_one(self, stranger: Stranger, now_s: float) -> bool:
        sighting = self._seen.pop(stranger.instance_id, None)
        facts = (stranger.size_bytes, stranger.changed_ns)
        if sighting is None or (sighting.size_bytes, sighting.changed_ns) != facts:
            sighting = _Sighting(*facts, first_s=now_s, last_s=now_s)
        sighting.last_s = now_s
        self._seen[stranger.instance_id] = sighting
        while len(self._seen) > REMEMBERED_MAX:
            self._seen.popitem(last=False)
        return self._is_still(sighting)

    def _is_still(self, sighting: _Sighting) -> bool:
        return sighting.last_s - sighting.first_s >= self._grace_s
