"""The one writer of a nof device: catalog, allocator and log behind batch calls.  Layer: nof tier.

Synchronous: it runs in the index worker.  Writers of data ask it for extents, write them
elsewhere and come back to commit.  Invariant, in this order and never another: data flushed, index
frame flushed, replica visible; and for a drop: index frame flushed, replica gone, blocks free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from weightctl.adapters.nof.allocator import Allocator, Extent
from weightctl.adapters.nof.layout import BLOCK_BYTES, Superblock, round_up
from weightctl.adapters.nof.records import (
    TEXT_BYTES_MAX,
    Drop,
    FenceTerm,
    Put,
    Quarantine,
    Replica,
    group_bytes,
    put_bytes,
)
from weightctl.adapters.nof.writer import SERIAL_BITS, IndexWriter
from weightctl.adapters.shared.fencing import refuse_older
from weightctl.adapters.shared.translate import outcome_from_error
from weightctl.controller.core.observation import Member
from weightctl.controller.errors import (
    FencedError,
    InvariantViolationError,
    TerminalError,
    TransientError,
    require,
)
from weightctl.controller.ports import (
    Busy,
    Conflict,
    Done,
    DropItem,
    Fence,
    NoCapacity,
    NoOp,
    Outcome,
    Permanent,
    Retry,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weightctl.adapters.nof.medium import Medium

_FENCE_HOLDERS_MAX = 256
_TERM_MAX = 2**64 - 1
_HALF_SHARE_MAX = 3 / 4
"""Replica records may fill this much of a half; the rest is for drops and between snapshots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """Extents that one store may write, under one claim; `serial` names the coming replica."""

    serial: int
    claim: int
    member: Member
    extents: tuple[Extent, ...]
    order: int
    """Which call asked for it, so that one that never heard the answer can still give it up."""


class NofDevice:
    """An open device.  Made by `open_device`; every method but `close` may raise ReconcileError."""

    def __init__(self, medium: Medium, writer: IndexWriter, capacity_bytes: int | None) -> None:
        self.catalog = writer.catalog
        self._medium = medium
        self._writer = writer
        self._capacity_bytes = capacity_bytes
        self._geometry = writer.superblock.geometry
        self._allocator = Allocator(self._geometry.data_blocks)
        self._tickets: dict[int, Ticket] = {}
        self._writing: dict[tuple[str, str], int] = {}
        self._unproven: list[Extent] = []
        self._pending_bytes = 0
        """Index bytes that the stores under way will take."""
        self._serials = 0

    @property
    def superblock(self) -> Superblock:
        """The superblock in force."""
        return self._writer.superblock

    @property
    def failed(self) -> str:
        """Why the device must be opened anew, or an empty text."""
        return self._writer.failed

    @property
    def uuid(self) -> str:
        """The device's identity in hexadecimal."""
        return self.superblock.uuid.hex()

    def check(self) -> None:
        """Raise a ReconcileError unless the medium is still this device and still ours to write."""
        self._writer.check()

    def prove_free(self) -> None:
        """Free every block that no replica claims and no living writer has locked.

        Call it once the claim is durable: a writer of an older claim either locked its extents
        before, and is seen here, or will find that its claim is over.
        """
        claimed = [run for item in self.catalog.replicas.values() for run in item.extents]
        try:
            self._allocator.release_unclaimed(claimed)
        except InvariantViolationError as error:
            raise TerminalError(
                "the index of the nof device contradicts itself", error.what, error.why
            ) from error
        with self._writer.guard():
            for locked in self._locked_extents():
                self._unproven += self._allocator.take(locked)

    # --- looking ----------------------------------------------------------------------------------

    @property
    def tickets(self) -> tuple[Ticket, ...]:
        """The stores under way."""
        return tuple(self._tickets.values())

    def capacity(self) -> tuple[int, int, int]:
        """(used, free, total) bytes; used counts whole blocks, kept and not yet proven ones too."""
        self._writer.must_work()
        self._reclaim()
        total = self._geometry.data_blocks * BLOCK_BYTES
        if self._capacity_bytes is not None:
            total = min(total, self._capacity_bytes)
        return self._used_bytes(), self._free_bytes(), total

    def _used_bytes(self) -> int:
        blocks = self._geometry.data_blocks - self._allocator.free_blocks
        return blocks * BLOCK_BYTES

    def _free_bytes(self) -> int:
        free = self._allocator.largest_blocks() * BLOCK_BYTES
        if self._capacity_bytes is None:
            return free
        return max(0, min(free, self._capacity_bytes - self._used_bytes()))

    # --- storing ----------------------------------------------------------------------------------

    def reserve(
        self, members: Sequence[Member], fence: Fence, order: int = 0
    ) -> list[Ticket | Outcome]:
        """A ticket for each replica that may be written now, or why there is none."""
        refusal = self._admit(fence)
        if refusal is not None:
            return [refusal] * len(members)
        self._reclaim()
        return [self._reserve(member, order) for member in members]

    def _reserve(self, member: Member, order: int) -> Ticket | Outcome:
        problem = _text_problem(member)
        if problem:
            return Permanent(detail=problem)
        present = self.catalog.visible.get(member.group_id, {}).get(member.key)
        if present is not None:
            if (present.size_bytes, present.sha256) == (member.size_bytes, member.sha256):
                return NoOp(instance_id=self.instance_id(present.serial))
            return Conflict(detail=f"{member.key} is stored with other content")
        if (member.group_id, member.key) in self._writing:
            return Busy(detail=f"{member.key} is being written")
        return self._allocate(member, order)

    def _allocate(self, member: Member, order: int) -> Ticket | Outcome:
        needed = round_up(member.size_bytes)
        free = self._free_bytes()
        if needed > free:
            return NoCapacity(needed_bytes=needed, free_bytes=free)
        extents = self._allocator.allocate(needed // BLOCK_BYTES) or ()
        require(extents or not needed, "nof allocator", "it has less than it said")
        if any(self._is_locked(extent) for extent in extents):
            self._unproven += extents  # a writer that was given up came late; it will end
            return self._allocate(member, order)
        self._serials += 1
        claim = self.superblock.claim
        serial = (claim << SERIAL_BITS) + self._serials
        ticket = Ticket(serial=serial, claim=claim, member=member, extents=extents, order=order)
        limit = self._geometry.half_bytes * _HALF_SHARE_MAX
        if self.catalog.record_bytes + self._pending_bytes + _record_bytes(ticket) > limit:
            self._allocator.release(ticket.extents)
            return NoCapacity(needed_bytes=needed, free_bytes=0)
        self._tickets[serial] = ticket
        self._pending_bytes += _record_bytes(ticket)
        self._writing[member.group_id, member.key] = serial
        return ticket

    def commit(self, serials: Sequence[int], fence: Fence) -> list[Outcome]:
        """Make written replicas durable and visible; their writers must be done."""
        refusal = self._admit(fence)
        if refusal is not None:
            self.abort(serials)
            return [refusal] * len(serials)
        lost = Retry(detail="the index was opened anew during the store; nothing was kept")
        outcomes: list[Outcome] = [lost] * len(serials)
        known = [i for i, serial in enumerate(serials) if serial in self._tickets]
        changes = [Put(_replica(self._tickets[serials[i]])) for i in known]
        for position, outcome in enumerate(self._writer.carry_out(changes, flush_data=True)):
            index = known[position]
            serial = serials[index]
            size = self._tickets[serial].member.size_bytes
            if outcome is None:
                self._close_ticket(serial)
            done = Done(instance_id=self.instance_id(serial), moved_bytes=size)
            outcomes[index] = outcome or done
        return outcomes

    def abort(self, serials: Iterable[int]) -> None:
        """Give up stores; their blocks are free once no writer has them locked."""
        for serial in serials:
            if serial in self._tickets:
                self._unproven += self._close_ticket(serial).extents
        self._reclaim()

    def _close_ticket(self, serial: int) -> Ticket:
        ticket = self._tickets.pop(serial)
        self._pending_bytes -= _record_bytes(ticket)
        del self._writing[ticket.member.group_id, ticket.member.key]
        return ticket

    # --- removing ---------------------------------------------------------------------------------

    def drop(self, items: Sequence[DropItem], fence: Fence) -> list[Outcome]:
        """Remove the named replicas, visible or quarantined; free their blocks when durable."""
        return self._remove(items, fence, hide=False)

    def quarantine(self, items: Sequence[DropItem], fence: Fence) -> list[Outcome]:
        """Take the named replicas out of sight and keep their blocks."""
        return self._remove(items, fence, hide=True)

    def _remove(self, items: Sequence[DropItem], fence: Fence, *, hide: bool) -> list[Outcome]:
        refusal = self._admit(fence)
        if refusal is not None:
            return [refusal] * len(items)
        outcomes: list[Outcome] = [NoOp()] * len(items)
        targets: dict[int, int] = {}  # index of the first item that names the serial
        for index, item in enumerate(items):
            found = self._target(item, hide=hide)
            if not isinstance(found, int):
                outcomes[index] = found
            else:
                targets.setdefault(found, index)
        replicas = [self.catalog.replicas[serial] for serial in targets]
        changes = [(Quarantine if hide else Drop)(replica.serial) for replica in replicas]
        done = self._writer.carry_out(changes)
        for index, replica, outcome in zip(targets.values(), replicas, done, strict=True):
            if outcome is None and not hide:
                self._allocator.release(replica.extents)
            outcomes[index] = outcome or Done(instance_id=self.instance_id(replica.serial))
        return outcomes

    def _target(self, item: DropItem, *, hide: bool) -> int | Outcome:
        member = item.member
        serial = self._serial(item.instance_id)
        replica = self.catalog.replicas.get(serial)
        if replica is not None and (replica.group_id, replica.key) == (member.group_id, member.key):
            return NoOp(instance_id=item.instance_id) if hide and replica.quarantined else serial
        writing = self._writing.get((member.group_id, member.key))
        if writing is not None and writing == serial:
            return Busy(detail=f"{member.key} is being written")
        if member.key in self.catalog.visible.get(member.group_id, {}):
            return Conflict(detail=f"another instance of {member.key} is there")
        return NoOp()

    def _admit(self, fence: Fence) -> Outcome | None:
        """Refuse a fence older than one served; remember a newer one durably first."""
        self.check()
        problem = _name_problem(fence.holder)
        if not 0 <= fence.term <= _TERM_MAX:
            problem = f"term {fence.term} is not from 0 to {_TERM_MAX}"
        if problem:
            raise TerminalError("the fence cannot be recorded", problem)
        known = self.catalog.fences.get(fence.holder, 0)
        try:
            refuse_older(fence, known)
        except FencedError as error:
            return outcome_from_error(error)
        if fence.term > known:
            if fence.holder not in self.catalog.fences:
                while len(self.catalog.fences) >= _FENCE_HOLDERS_MAX:
                    del self.catalog.fences[next(iter(self.catalog.fences))]
            (outcome,) = self._writer.carry_out([FenceTerm(fence.holder, fence.term)])
            if outcome is not None:
                raise TransientError("the fence could not be recorded", repr(outcome))
        return None

    def close(self) -> None:
        """Release the device; in order where no store is under way.  Never raises."""
        self._writer.close(orderly=not self._tickets and not self._unproven)

    # --- helpers ----------------------------------------------------------------------------------

    def instance_id(self, serial: int) -> str:
        """Names one replica of one device."""
        return instance_id(self.superblock.uuid, serial)

    def _serial(self, instance_id: str) -> int:
        """The serial, or -1 for a name that this device never gave."""
        try:
            serial = int(instance_id.rpartition("-")[2], 16)
        except ValueError:
            return -1
        return serial if self.instance_id(serial) == instance_id else -1  # one spelling only

    def _locked_extents(self) -> Iterator[Extent]:
        """Blocks of the data region that living writers have locked."""
        geometry = self._geometry
        position = geometry.data_offset
        while position < geometry.total_bytes:
            found = self._medium.locked(position, geometry.total_bytes - position)
            if found is None:
                return
            start = max(found[0], position)
            end = min(found[0] + found[1], geometry.total_bytes)
            first = (start - geometry.data_offset) // BLOCK_BYTES
            last = round_up(end - geometry.data_offset) // BLOCK_BYTES
            yield first, min(last, geometry.data_blocks) - first
            position = end

    def _is_locked(self, extent: Extent) -> bool:
        start, size = self._geometry.block_offset(extent[0]), extent[1] * BLOCK_BYTES
        with self._writer.guard():
            return self._medium.locked(start, size) is not None

    def _reclaim(self) -> None:
        """Free what was not proven before and is not locked now."""
        if not self._unproven:
            return
        still = [extent for extent in self._unproven if self._is_locked(extent)]
        self._allocator.release(run for run in self._unproven if run not in still)
        self._unproven = still


def instance_id(uuid: bytes, serial: int) -> str:
    """Names one replica of one device."""
    return f"{uuid.hex()[:8]}-{serial:x}"


def _replica(ticket: Ticket) -> Replica:
    member = ticket.member
    return Replica(
        ticket.serial, member.group_id, member.key, member.size_bytes, member.sha256, ticket.extents
    )


def _record_bytes(ticket: Ticket) -> int:
    return put_bytes(_replica(ticket)) + group_bytes(ticket.member.group_id)


def _text_problem(member: Member) -> str:
    return _name_problem(member.key) or _name_problem(member.group_id)


def _name_problem(text: str) -> str:
    try:
        size = len(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return f"{text[:80]!r} stands for no bytes"
    return "" if size <= TEXT_BYTES_MAX else f"{text[:80]!r}... is over {TEXT_BYTES_MAX} bytes long"
