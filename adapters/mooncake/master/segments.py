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
    from collections.abc import Callable, Iterable

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
    lot, empty while it is not known yet, None when there is no lot; settling_s: how long a host
    that has come may still tell of old files on its disk.
    """

    def __init__(
        self,
        serving: Serving,
        clock: Clock,
        preferred: tuple[str, ...],
        lot_at: Callable[[], str | None],
        settling_s: float = 0.0,
    ) -> None:
        self._serving = serving
        self._clock = clock
        self._preferred = preferred
        self._lot_at = lot_at
        self._passing: frozenset[str] = frozenset()
        self._until_s = 0.0
        self._hosts: list[Segment] = []
        self._settling_s = settling_s
        self._settled_s: dict[str, float] | None = None
        """By client from when on it counts as settled; None before the first list."""
        self._turn = 0

    async def listed(self) -> list[Segment]:
        """All of them, asked now.  Raises TransientError."""
        found = await self._serving.segments()
        self._passing = frozenset(one.endpoint for one in found if one.status in _PASSING)
        ours = self._lot_at() or ""
        self._hosts = [one for one in found if one.status == "OK" and one.endpoint != ours]
        now_s = self._clock.monotonic_s()
        self._until_s = now_s + _PASSING_S
        self._note(found, now_s)
        return found

    def _note(self, found: Iterable[Segment], now_s: float) -> None:
        """Who was not listed before has just come, unless nobody was."""
        before = self._settled_s
        then_s = now_s + self._settling_s if before is not None else now_s
        self._settled_s = {
            one.client_id: (before or {}).get(one.client_id, then_s) for one in found
        }

    async def settle(self) -> frozenset[str]:
        """The clients that have settled; waits for the first.  Raises TransientError."""
        await self.look_for_passing()
        if self._settled_s and not self.settled():
            left_s = min(self._settled_s.values()) - self._clock.monotonic_s()
            await self._clock.sleep(max(left_s, 0.0))
            await self.listed()
        return self.settled()

    def settled(self) -> frozenset[str]:
        """The clients, as last listed, that have told of their files long ago."""
        now_s = self._clock.monotonic_s()
        return frozenset(one for one, then_s in (self._settled_s or {}).items() if then_s <= now_s)

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
        settled = self.settled()
        late = {one.name for one in self._hosts if one.client_id not in settled}
        hosts = [one.name for one in self._hosts] if late or self._lot_at() is not None else ()
        wanted = self._preferred or hosts
        names = [name for name in wanted if name not in late] or wanted
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
