"""The memory segments of a cluster, and which of them will soon be gone.  Layer: a tier; loop.

A segment that is being unmounted, and our own lot (`parking`), still give what they hold and soon
do not.  Invariant: what lies in memory on such segments only is never COMPLETE there, and nothing
of ours is put onto the lot: a host offloads only what is put onto itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.adapters.mooncake.master.replicas import MEMORY, in_memory, state_of
from weightctl.controller.core.observation import MemberState

if TYPE_CHECKING:
    from collections.abc import Callable

    from weightctl.adapters.mooncake.master.admin import Segment
    from weightctl.adapters.mooncake.master.replicas import Entry, ReplicaKind
    from weightctl.adapters.mooncake.master.serving import Serving
    from weightctl.controller.ports import Clock

_PASSING = frozenset({"GRACEFULLY_UNMOUNTING", "UNMOUNTING"})
_PASSING_S = 2.0
"""How long it is not asked again which segments are being unmounted."""


class Segments:
    """The segments, as they were listed last.

    preferred: names of those that new objects are put on, none for any; lot_at: the endpoint of our
    lot, empty while it is not known yet, None when there is no lot.
    """

    def __init__(
        self,
        serving: Serving,
        clock: Clock,
        preferred: tuple[str, ...],
        lot_at: Callable[[], str | None],
    ) -> None:
        self._serving = serving
        self._clock = clock
        self._preferred = preferred
        self._lot_at = lot_at
        self._passing: frozenset[str] = frozenset()
        self._until_s = 0.0
        self._hosts: list[Segment] = []
        self._turn = 0

    async def listed(self) -> list[Segment]:
        """All of them, asked now.  Raises TransientError."""
        found = await self._serving.segments()
        self._passing = frozenset(one.endpoint for one in found if one.status in _PASSING)
        ours = self._lot_at() or ""
        self._hosts = [one for one in found if one.status == "OK" and one.endpoint != ours]
        self._until_s = self._clock.monotonic_s() + _PASSING_S
        return found

    async def hosts(self) -> list[Segment]:
        """Those that take new objects, without the lot; asked now.  Raises TransientError."""
        await self.listed()
        return self._hosts

    async def look_for_passing(self) -> None:
        """Know which are being unmounted, as of a moment ago.  Raises TransientError."""
        if self._clock.monotonic_s() >= self._until_s:
            await self.listed()

    def next(self) -> str:
        """The segment that the next object is put on; empty for any."""
        hosts = [one.name for one in self._hosts] if self._lot_at() is not None else ()
        names = self._preferred or hosts
        if not names:
            return ""
        self._turn += 1
        return names[self._turn % len(names)]

    @property
    def some_pass(self) -> bool:
        """Whether there is one that will soon be gone."""
        return bool(self._passing) or self._lot_at() is not None

    def passes(self, entry: Entry | None) -> bool:
        """Whether every memory replica of an object lies where it will soon be gone."""
        if not self.some_pass:
            return False
        ours = self._lot_at() or ""
        ends = [found.endpoint for found in in_memory(entry)]
        return bool(ends) and all(end == ours or end in self._passing for end in ends)

    def state_of(self, entry: Entry | None, kind: ReplicaKind, size_bytes: int) -> MemberState:
        """As `replicas.state_of`, but PARTIAL for what will soon be gone from memory."""
        state = state_of(entry, kind, size_bytes)
        if state is MemberState.COMPLETE and kind is MEMORY and self.passes(entry):
            return MemberState.PARTIAL
        return state
