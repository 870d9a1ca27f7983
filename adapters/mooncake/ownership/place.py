"""Which cluster a book is of: one Master's.  Layer: a tier; on the loop.

A book of one cluster beside another one would call strangers' objects managed ones.  Its cluster
is named by the option `master`; a Master under another address is the same cluster when it has the
marker that the book names, in memory or brought back by the hosts.  Invariant: a book is never used
beside a Master that was not seen to be its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio import to_thread

from weightctl.adapters.mooncake.master.replicas import is_absent, is_there
from weightctl.adapters.mooncake.master.serving import threaded
from weightctl.adapters.shared.ownership import ForeignMediumError
from weightctl.controller.errors import TransientError

if TYPE_CHECKING:
    from weightctl.adapters.mooncake.master.replicas import Entry
    from weightctl.adapters.mooncake.ownership.epoch import Epoch
    from weightctl.adapters.mooncake.site import Site


class OtherClusterError(ForeignMediumError):
    """The book is of another cluster; nothing was changed."""


class Place:
    """Whether the book of one connection is that of its Master; seen once."""

    def __init__(self, site: Site, epoch: Epoch) -> None:
        self._site = site
        self._epoch = epoch
        self._is_sure = False

    async def make_sure(self) -> None:
        """Raise OtherClusterError when the book is another's; TransientError for no answer."""
        if self._is_sure:
            return
        site, master = self._site, self._site.options.place
        if site.book.master != master:
            if site.book.master and self._epoch.marker:
                self._recognise(await threaded(self._marker))
            if not site.context.read_only:
                await to_thread.run_sync(site.book.set_master, master)
        self._is_sure = True

    def _marker(self) -> Entry | None:
        admin, marker = self._site.serving.admin, self._epoch.marker
        return admin.query(admin.health(), [marker]).get(marker)

    def _recognise(self, marker: Entry | None) -> None:
        site, master = self._site, self._site.options.place
        if is_absent(marker):
            raise OtherClusterError(
                f"{site.name} is not the one of {site.book.path}",
                f"the file was kept for the Master {site.book.master}, and what it marked there is"
                f" not at {master}",
                "give another cluster another `cluster` in [mooncake]; if this one has moved and"
                " lost all that it held, stop weightctl and move that file away: what is there is"
                " then recognised by reading it",
            )
        if not is_there(marker):
            raise TransientError(
                site.name,
                f"the Master at {master} did not tell whether it is the one of {site.book.path}",
                "it is asked again",
            )
