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
from weightctl.adapters.shared.ownership import ForeignMediumError
from weightctl.controller.errors import TransientError

if TYPE_CHECKING:
    from weightctl.adapters.mooncake.connection import Connection
    from weightctl.adapters.mooncake.master.replicas import Entry


class OtherClusterError(ForeignMediumError):
    """The book is of another cluster; nothing was changed."""


async def make_sure_of_place(connection: Connection) -> None:
    """Raise OtherClusterError when the book is of another cluster; TransientError for no answer."""
    book, master = connection.book, connection.options.place
    if book.master == master:
        return
    if book.master and connection.marker:
        entry = await to_thread.run_sync(_marker, connection, abandon_on_cancel=True)
        if is_absent(entry):
            raise _other(connection)
        if not is_there(entry):
            raise TransientError(
                f"cluster {connection.options.cluster}",
                f"the Master at {master} did not tell whether it is the one of {book.path}",
                "it is asked again",
            )
    if not connection.context.read_only:
        await to_thread.run_sync(book.set_master, master)


def _marker(connection: Connection) -> Entry | None:
    admin, marker = connection.admin, connection.marker
    return admin.query(admin.health(), [marker]).get(marker)


def _other(connection: Connection) -> OtherClusterError:
    book, options = connection.book, connection.options
    return OtherClusterError(
        f"cluster {options.cluster} is not the one of {book.path}",
        f"the file was kept for the Master {book.master}, and what it marked there is not at"
        f" {options.place}",
        "give another cluster another `cluster` in [mooncake]; if this one has moved and lost all"
        " that it held, stop weightctl and move that file away: what is there is then recognised"
        " by reading it",
    )
