"""The Master that serves, asked off the loop, and counted.  Layer: a tier; on the loop.

Invariant: whoever is asked for health is told to `standing`, whether there was an answer or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from anyio import to_thread

from weightctl.controller.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from weightctl.adapters.mooncake.master.admin import Admin, Health, Segment
    from weightctl.adapters.mooncake.standing import Standing

T = TypeVar("T")


class Serving:
    """What the Master says of itself and lists; all of it over HTTP, which takes no lease."""

    def __init__(self, admin: Admin, standing: Standing) -> None:
        self.admin = admin
        self.standing = standing

    async def health(self) -> Health:
        """Who serves.  Raises TransientError when nobody does."""
        return await threaded(self.health_now)

    def health_now(self) -> Health:
        """As `health`; blocking."""
        try:
            health = self.admin.health()
        except TransientError as error:
            self.standing.is_away(error.why)
            raise
        self.standing.serves(health)
        return health

    async def all_keys(self, *begins: str) -> list[str]:
        """The keys of the cluster that begin so, without any all.  Raises TransientError."""
        return await threaded(lambda: self.admin.all_keys(self.health_now(), begins or ("",)))

    async def segments(self) -> list[Segment]:
        """The memory segments.  Raises TransientError."""
        return await threaded(lambda: self.admin.segments(self.health_now()))


async def threaded(call: Callable[[], T]) -> T:
    """Let a blocking question run in a worker thread; who is cancelled does not wait for it."""
    return await to_thread.run_sync(call, abandon_on_cancel=True)
