"""Seeing what is there.  Layer: adapters, shared; blocking.

Invariants: one fresh listing answers for a whole group, once it is on the medium; ABSENT needs the
right marker, a listing that ran to its end and no living writer; every doubt is UNKNOWN.  Observing
changes nothing, not even a killed writer's leftover, which counts as absent until a sweep or the
next store removes it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from weightctl.adapters.shared.drafts import is_live
from weightctl.adapters.shared.folders import every_group, group_folder, group_id_of, text_of
from weightctl.adapters.shared.layout import PARTIAL, QUARANTINED, encode_text
from weightctl.adapters.shared.listing import GroupListing, list_group
from weightctl.adapters.shared.translate import error_from_os
from weightctl.controller.core.observation import (
    MemberState,
    ReplicaDetail,
    TierObservation,
    unknown_observation,
)
from weightctl.controller.errors import ReconcileError
from weightctl.controller.ports import InventoryItem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weightctl.adapters.shared.layout import StoredName
    from weightctl.adapters.shared.root import Root
    from weightctl.controller.core.observation import Members

_INVENTORY_STATES = {"": "complete", PARTIAL: "partial", QUARANTINED: "quarantined"}
_ABSENT, _PARTIAL, _COMPLETE = MemberState.ABSENT, MemberState.PARTIAL, MemberState.COMPLETE


def observe(root: Root, members: Members, detail: Sequence[int] = ()) -> TierObservation:
    """One state byte a member; details of present ones at the indexes `detail`.  Never raises."""
    try:
        with root.medium.opened() as root_fd:
            return _observe(root, root_fd, members, detail)
    except ReconcileError as error:
        return unknown_observation(len(members), f"{error.what}: {error.why}")
    except OSError as error:
        return unknown_observation(len(members), f"{error.strerror}: {error.filename}")


def _observe(root: Root, root_fd: int, members: Members, detail: Sequence[int]) -> TierObservation:
    group = encode_text(members.group_id)
    epoch = root.medium.epoch()  # before: what is seen may be gone when a new one begins
    claimed = root.claimed(group)  # before and after: a file may be renamed while it is listed
    try:
        with group_folder(root_fd, group) as group_fd:
            listing = list_group(group_fd)
            claimed |= root.claimed(group)
            root.relist(group, listing)
            states = _states(root, members, listing, claimed, group_fd)
            root.settle(group, group_fd)  # what is seen is said, so it has to stay
            details = _details(members, listing, states, detail, group_fd)
    except FileNotFoundError:
        claimed |= root.claimed(group)
        states = _states(root, members, GroupListing(), claimed, -1)
        details = {}
    return TierObservation(states=bytes(states), epoch=epoch, details=details)


def _states(
    root: Root,
    members: Members,
    listing: GroupListing,
    claimed: Mapping[str, str],
    group_fd: int,
) -> bytearray:
    states = bytearray(len(members))
    complete, others = listing.complete, listing.others
    for index, key in enumerate(members.keys):
        text = encode_text(key)
        if text in claimed and complete.get(text, claimed[text]).endswith(claimed[text]):
            states[index] = _PARTIAL  # not there yet, or renamed and not yet synchronised
        elif text in complete:
            states[index] = _COMPLETE
        elif text not in others:
            states[index] = _ABSENT
        else:
            states[index] = _state_of_rest(root, listing.names(text), group_fd)
    return states


def _state_of_rest(root: Root, names: Sequence[StoredName], group_fd: int) -> MemberState:
    partial = [name for name in names if name.suffix == PARTIAL]
    living = any(root.foreign(name) or is_live(group_fd, str(name)) for name in partial)
    return _PARTIAL if living else _ABSENT


def _details(
    members: Members,
    listing: GroupListing,
    states: bytearray,
    detail: Sequence[int],
    group_fd: int,
) -> dict[int, ReplicaDetail]:
    details = {}
    for index in detail:
        if states[index] != _COMPLETE:
            continue
        name = choose(listing.names(encode_text(members.keys[index])), members.digest(index))
        try:
            found = os.stat(str(name), dir_fd=group_fd, follow_symlinks=False)
        except FileNotFoundError:  # dropped since it was listed
            states[index] = MemberState.UNKNOWN
            continue
        details[index] = ReplicaDetail(
            instance_id=name.instance_id,
            size_bytes=found.st_size,
            sha256=bytes.fromhex(name.sha256_hex),
        )
    return details


def choose(names: Sequence[StoredName], sha256: bytes) -> StoredName:
    """The complete replica that stands for a key: with the wanted content first, then by id."""
    complete = [name for name in names if not name.suffix]
    return min(complete, key=lambda name: (name.sha256_hex != sha256.hex(), name.instance_id))


def inventory(root: Root, group_id: str | None = None) -> dict[str, list[InventoryItem]]:
    """Everything with one of our names, by group id.  Raises ReconcileError."""
    found: dict[str, list[InventoryItem]] = {}
    try:
        with root.medium.opened() as root_fd:
            for group, group_fd in _folders(root_fd, group_id):
                items = _items(group_fd)
                if items:
                    found[group_id_of(root_fd, group)] = items
    except OSError as error:
        raise error_from_os(error, f"the inventory of {str(root.medium.root)!r}") from error
    return found


def _folders(root_fd: int, group_id: str | None) -> Iterator[tuple[str, int]]:
    if group_id is None:
        yield from every_group(root_fd)
        return
    group = encode_text(group_id)
    with suppress(FileNotFoundError), group_folder(root_fd, group) as group_fd:
        yield group, group_fd


def _items(group_fd: int) -> list[InventoryItem]:
    items = []
    for name in list_group(group_fd).every():
        with suppress(FileNotFoundError):  # dropped since it was listed
            found = os.stat(str(name), dir_fd=group_fd, follow_symlinks=False)
            item = InventoryItem(
                key=text_of(group_fd, name.text),
                instance_id=name.instance_id,
                size_bytes=found.st_size,
                state=_INVENTORY_STATES[name.suffix],
            )
            items.append(item)
    return sorted(items, key=lambda item: (item.key, item.instance_id))
