"""One connection to a Mooncake cluster, shared by its tiers.  Layer: a tier; on the loop.

Puts the parts together that know one cluster: `look` asks for objects, `clients` run the wheel,
`segments` are the hosts' memory, `book` is what the Master does not tell, `reads` are our own
leases.  Invariant: of one cluster there is one connection in a state directory; it is open as long
as a tier is.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import anyio
from anyio import to_thread

from weightctl.adapters.mooncake.client.clients import Clients
from weightctl.adapters.mooncake.client.reads import Reads
from weightctl.adapters.mooncake.looking import Looking
from weightctl.adapters.mooncake.master.election import admin_of
from weightctl.adapters.mooncake.master.segments import Segments
from weightctl.adapters.mooncake.master.serving import Serving
from weightctl.adapters.mooncake.ownership.book import Book
from weightctl.adapters.mooncake.ownership.small import SmallObjects
from weightctl.adapters.mooncake.site import Site
from weightctl.adapters.mooncake.standing import Standing
from weightctl.controller.errors import ConfigError, ReconcileError, TransientError

if TYPE_CHECKING:
    from weightctl.adapters.mooncake.options import ConnectionOptions
    from weightctl.adapters.mooncake.parking.lot import Lot
    from weightctl.adapters.mooncake.root_fs.files import DiskFiles
    from weightctl.controller.ports import MediumReport, TierContext

_REPORT_S = 2.0


class Connection:
    """Everything that the tiers of one cluster share.  Enter it once for each tier."""

    look: Looking
    """From the first `enter` on; another one after each."""

    def __init__(self, options: ConnectionOptions, context: TierContext) -> None:
        self.options = options
        self.context = context
        path = Path(context.state_dir) / "tiers" / f"{options.cluster}.mooncake.sqlite"
        self.book = Book(path, read_only=context.read_only)
        self.serving = Serving(admin_of(options, context.clock), Standing(context.clock))
        self._site = Site(options=options, context=context, serving=self.serving, book=self.book)
        self.clients = Clients(self._site)
        self.segments = Segments(
            self.serving, context.clock, options.segments, self._lot_at, options.claim_s
        )
        self.reads = Reads(context.clock, options.lease_ttl_s, options.verify_bytes_per_s)
        self.reading: Counter[str] = Counter()
        """Keys that are open for reading in this process."""
        self.putting: dict[str, anyio.Event] = {}
        """Keys that are being put in this process; set when that has ended."""
        self.settled: dict[str, frozenset[str]] = {}
        """By key that was put the clients that had settled before, until its keeper is noted."""
        self.sole: dict[str, str] = {}
        """By key the disk that was seen to hold the only copy, until it is known to be right."""
        self.wrong_on_disk: dict[str, str] = {}
        """By key the disk whose only copy was read wrong beside memory."""
        self.unread_disks: dict[str, str] = {}
        """By endpoint why the copies of that host cannot be read beside memory."""
        self.disk: DiskFiles | None = None
        """The files of DISK replicas, where there is a tier of them: then every put makes one."""
        self.speaker = ""
        """The tier that tells `doctor` what concerns all of them."""
        self.parking = anyio.Lock()
        self.lot: Lot | None = None
        """The passing segment of ours that has not gone yet."""
        self._small = SmallObjects(self._site, self.clients, lambda: self.disk is None)
        self._entering = anyio.Lock()
        self._entered = 0
        self._stack = AsyncExitStack()

    # --- life ---

    @property
    def in_use(self) -> bool:
        """Whether a tier has entered it and not left."""
        return self._entered > 0

    async def enter(self) -> None:
        """Open the book; the clients start when they are first needed."""
        async with self._entering:
            if self._entered == 0:
                await self._open()
            self._entered += 1

    async def _open(self) -> None:
        self.look = Looking(self._site, self._small, self.reads.saw)
        async with AsyncExitStack() as stack:
            await to_thread.run_sync(self.book.open)
            stack.push_async_callback(to_thread.run_sync, self.book.close)
            self.serving.admin.open()
            stack.callback(self.serving.admin.close)
            await stack.enter_async_context(self.clients.running())
            if self.options.adopt:
                with suppress(ReconcileError):  # a Master that is away is asked again
                    await self.look.make_sure()
            self._stack = stack.pop_all()

    async def leave(self) -> None:
        """End the clients when the last tier leaves."""
        self._entered -= 1
        if self._entered == 0:
            if self.lot is not None:
                await self.lot.close()
            await self._stack.aclose()

    def _lot_at(self) -> str | None:
        return None if self.lot is None else self.lot.endpoint

    # --- telling ---

    def remark(self) -> str:
        """What this process has asked the Master, and that none of it kept anything alive."""
        asked = ", ".join(
            f"{count} x {path}" for path, count in self.serving.admin.asked.items() if count
        )
        count = self.reads.count
        reads = f"{count} reads of objects took one, none of them for a plan or a dry run"
        told = (
            f"since this process began {self._site.name} was looked at by GET {asked or 'nothing'}:"
            " none of these takes a Mooncake lease or promotes;"
            f" {reads if count else 'no object was read'}"
        )
        if self.book.strange:
            told += (
                f"; {self.book.strange} objects were there before weightctl knew them and may not"
                " be hard-pinned: the Master may evict them from memory, which is noticed, and they"
                " stay readable as long as a host has them on its disk"
            )
        return told

    async def report(self) -> MediumReport:
        """How the cluster does, asked now; takes no lease.

        What is known without an answer is told when none comes soon.
        """
        with suppress(TransientError), anyio.move_on_after(_REPORT_S):
            await self.serving.health()
        return self.serving.standing.report(self.serving.admin.asked, self.reads)


_open: WeakValueDictionary[tuple[str, bool, str], Connection] = WeakValueDictionary()


def shared(options: ConnectionOptions, context: TierContext) -> Connection:
    """The one connection of this state directory to this cluster, new or one that is in use.

    Two over one book would each act on what the other has changed meanwhile.  Raises ConfigError
    when one of the same configuration, or one that is in use, has other options.
    """
    key = (context.state_dir, context.read_only, options.cluster)
    connection = _open.get(key)
    if connection is not None and connection.options != options:
        if connection.context is context or connection.in_use:
            raise _unequal(connection.options, options)
        connection = None
    elif connection is not None and connection.context.fence != context.fence:
        connection = connection if connection.in_use else None  # that of an earlier start
    if connection is None:
        connection = _open[key] = Connection(options, context)
    return connection


def _unequal(one: ConnectionOptions, other: ConnectionOptions) -> ConfigError:
    names = [field.name for field in fields(one)]
    named = [name for name in names if getattr(one, name) != getattr(other, name)]
    said = "; ".join(f"{name} = {getattr(one, name)} and {getattr(other, name)}" for name in named)
    return ConfigError(
        f"the tiers of Mooncake cluster {one.cluster!r} cannot be used together",
        f"they share one connection and differ in {said}",
        "set connection options in the section [mooncake] only; give another cluster that is used"
        " beside it another `cluster`",
    )
