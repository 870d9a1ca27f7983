"""The epoch of a cluster: as long as its Master remembers.  Layer: a tier; on the loop.

It is proven by every single answer: a marker, an object of one byte that is hard-pinned and lies in
memory only as long as the Master remembers, is asked for together with the keys.  Invariant: an
answer without the marker in memory is no observation, and a new epoch begins only with a marker
that was seen, and with its token in the book.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from anyio import to_thread

from weightctl.adapters.mooncake.master.replicas import in_memory, is_there
from weightctl.controller.errors import ReconcileError, TransientError
from weightctl.controller.ports import NOT_SET_UP, SET_UP_BY_USE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weightctl.adapters.mooncake.master.admin import Health
    from weightctl.adapters.mooncake.master.replicas import Entry
    from weightctl.adapters.mooncake.ownership.small import SmallObjects
    from weightctl.adapters.mooncake.site import Site

MARKER_PREFIX = "weightctl-epoch/"


class ForgottenError(TransientError):
    """The Master does not know the marker: it may have forgotten everything."""


class Epoch:
    """The epoch of the book, or, for a dry run that has no book, of who acts there."""

    def __init__(self, site: Site, small: SmallObjects) -> None:
        self._site = site
        self._small = small
        self._shown = ""

    @property
    def marker(self) -> str:
        """Key of the marker of the book's epoch; empty before the first one."""
        token = self._site.book.epoch
        return f"{MARKER_PREFIX}{token}" if token else ""

    def marker_at(self, health: Health) -> str:
        """The marker to ask for; blocking.  Raises ForgottenError when there is none yet."""
        token = self._site.book.epoch or self._shown_at(health)
        if not token:
            why = f"{NOT_SET_UP}: {self._site.book.path}"
            raise ForgottenError(self._site.name, why, SET_UP_BY_USE)
        return f"{MARKER_PREFIX}{token}"

    def check(self, entry: Entry | None) -> None:
        """Raise ForgottenError unless the marker's entry shows it in memory."""
        if not is_there(entry) or not in_memory(entry):
            raise ForgottenError(
                self._site.name,
                "the Master does not hold the marker of this epoch in memory any more: it was"
                " restarted, or the marker's host was",
                "nothing is dropped until what it holds has settled",
            )

    def named(self, health: Health) -> str:
        """What an observation calls the epoch: another one in another view, too."""
        return f"{self._site.book.epoch or self._shown}:{health.view}"

    async def begin(self) -> None:
        """Put a new marker, and take the earlier ones away.  Raises ReconcileError."""
        token = self._site.context.entropy.token(8)
        await self._small.put(f"{MARKER_PREFIX}{token}")
        await to_thread.run_sync(self._site.book.set_epoch, token)
        self._site.serving.standing.begins_epoch()
        with suppress(ReconcileError):
            keys = await self._site.serving.all_keys(MARKER_PREFIX)
            await self._small.remove([key for key in keys if key != self.marker])

    def _shown_at(self, health: Health) -> str:
        """The epoch that another process has begun, for a dry run that has no book; empty for none.

        It acts on nothing, so that it need not know of earlier epochs.
        """
        if self._site.context.read_only and not self._shown:
            admin = self._site.serving.admin
            keys = admin.all_keys(health, (MARKER_PREFIX,))
            entries: Mapping[str, Entry] = admin.query(health, keys) if keys else {}
            there = sorted(key for key in keys if in_memory(entries.get(key)))
            self._shown = there[-1].removeprefix(MARKER_PREFIX) if there else ""
        return self._shown
