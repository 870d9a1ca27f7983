"""The index in its worker: answers batches about the device.  Layer: nof tier.

Methods take the uuid of the device that the tier saw first, empty before, and raise what
`DeviceAccess` raises.  Invariant: an answer is of one moment: requests come one after another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.adapters.nof.access import DeviceAccess, DeviceOptions
from weightctl.adapters.nof.device import Ticket
from weightctl.adapters.nof.layout import BLOCK_BYTES, Superblock
from weightctl.controller.core.observation import Member, MemberState, ReplicaDetail
from weightctl.controller.ports import DropItem, Fence, InventoryItem, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weightctl.adapters.nof.device import NofDevice
    from weightctl.adapters.nof.records import Replica

_ABSENT, _PARTIAL, _COMPLETE = MemberState.ABSENT, MemberState.PARTIAL, MemberState.COMPLETE


class IndexEngine:
    """The index of one tier."""

    def __init__(self, options: DeviceOptions) -> None:
        self.access = DeviceAccess(options)

    def info(self, expected: bytes) -> Superblock:
        """The superblock in force of the open device, which is made where the options say so."""
        with self.access.viewed(expected) as view:
            return view.superblock

    def observe(
        self, expected: bytes, group_id: str, keys: Sequence[str], detail: Sequence[int]
    ) -> tuple[bytes, dict[int, ReplicaDetail]]:
        """One state byte a key, and details of those asked for that are there."""
        with self.access.viewed(expected) as view:
            group = view.catalog.visible.get(group_id, {})
            states = bytearray(_COMPLETE if key in group else _ABSENT for key in keys)
            writing = view.writing(group_id)
            if writing:
                for index, key in enumerate(keys):
                    if key in writing:
                        states[index] = _PARTIAL
            details = {
                index: ReplicaDetail(
                    instance_id=view.name(replica.serial),
                    size_bytes=replica.size_bytes,
                    sha256=replica.sha256,
                )
                for index in detail
                if (replica := group.get(keys[index])) is not None
            }
            return bytes(states), details

    def locate(self, expected: bytes, names: Sequence[tuple[str, str]]) -> list[Replica | None]:
        """The visible replica of each (group id, key)."""
        with self.access.viewed(expected) as view:
            visible = view.catalog.visible
            return [visible.get(group_id, {}).get(key) for group_id, key in names]

    def alive(self, expected: bytes, serials: Sequence[int]) -> list[bool]:
        """Whether each replica is there still: its extents held nothing else until now."""
        with self.access.viewed(expected) as view:
            return [serial in view.catalog.replicas for serial in serials]

    def inventory(self, expected: bytes, group_id: str | None) -> dict[str, list[InventoryItem]]:
        """Everything on the device, by group, in the order of keys."""
        found: dict[str, list[InventoryItem]] = {}
        with self.access.viewed(expected) as view:
            for replica in view.catalog.replicas.values():
                if group_id in {None, replica.group_id}:
                    state = "quarantined" if replica.quarantined else "complete"
                    item = _item(replica.key, view.name(replica.serial), replica.size_bytes, state)
                    found.setdefault(replica.group_id, []).append(item)
            for ticket in view.tickets:
                member = ticket.member
                if group_id in {None, member.group_id}:
                    item = _item(member.key, view.name(ticket.serial), member.size_bytes, "partial")
                    found.setdefault(member.group_id, []).append(item)
        for items in found.values():
            items.sort(key=lambda item: (item.key, item.instance_id))
        return found

    def capacity(self, expected: bytes) -> tuple[int, int, int]:
        """(used, free, total) bytes."""
        if not self.access.options.read_only:
            with self.access.opened(expected) as device:
                return device.capacity()
        with self.access.viewed(expected) as view:
            extents = [run for item in view.catalog.replicas.values() for run in item.extents]
            used = sum(count for _, count in extents) * BLOCK_BYTES
            total = view.superblock.geometry.data_blocks * BLOCK_BYTES
            total = min(total, self.access.options.capacity_bytes or total)
            return used, max(0, total - used), total

    def reserve(
        self,
        expected: bytes,
        members: Sequence[Member],
        fence: Fence,
        order: int,
        given_up: Sequence[int],
    ) -> list[Ticket | Outcome]:
        """See `NofDevice.reserve`; `given_up` are orders to abort first."""
        with self.access.opened(expected) as device:
            _abort(device, given_up)
            return device.reserve(members, fence, order)

    def commit(self, expected: bytes, serials: Sequence[int], fence: Fence) -> list[Outcome]:
        """See `NofDevice.commit`."""
        with self.access.opened(expected) as device:
            return device.commit(serials, fence)

    def abort(self, expected: bytes, orders: Sequence[int]) -> None:
        """Give up what was reserved for these orders and is not committed."""
        with self.access.opened(expected) as device:
            _abort(device, orders)

    def drop(self, expected: bytes, items: Sequence[DropItem], fence: Fence) -> list[Outcome]:
        """See `NofDevice.drop`."""
        with self.access.opened(expected) as device:
            return device.drop(items, fence)

    def quarantine(self, expected: bytes, items: Sequence[DropItem], fence: Fence) -> list[Outcome]:
        """See `NofDevice.quarantine`."""
        with self.access.opened(expected) as device:
            return device.quarantine(items, fence)

    def adopt(self) -> str:
        """Make the device this store's; whose it was, empty when it was not another's."""
        return self.access.adopt()

    def close(self) -> None:
        """Close the device in order.  Never fails."""
        self.access.close()


def _abort(device: NofDevice, orders: Sequence[int]) -> None:
    device.abort([ticket.serial for ticket in device.tickets if ticket.order in orders])


def _item(key: str, name: str, size_bytes: int, state: str) -> InventoryItem:
    return InventoryItem(key=key, instance_id=name, size_bytes=size_bytes, state=state)


def make(buffer: memoryview, *, options: DeviceOptions) -> IndexEngine:  # noqa: ARG001
    """Engine factory for the worker pool; touches nothing.  The buffer is not needed."""
    return IndexEngine(options)
