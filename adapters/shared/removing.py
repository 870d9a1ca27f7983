"""Taking replicas away: drop, quarantine, sweep.  Layer: adapters, shared; blocking.

Invariants: only the named instance is touched, by a name that no other replica ever has, so a late
or doubled drop is harmless; what is read or written here is Busy; links and foreign files stay; an
outcome is Done only when the folder's change is on the medium.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from weightctl.adapters.shared.drafts import remove_leftover
from weightctl.adapters.shared.files import rename_in
from weightctl.adapters.shared.folders import every_group, group_folder, remove_if_empty
from weightctl.adapters.shared.layout import (
    PARTIAL,
    QUARANTINED,
    StoredName,
    encode_text,
    is_instance,
)
from weightctl.adapters.shared.listing import list_group
from weightctl.adapters.shared.translate import outcome_from_error
from weightctl.controller.errors import ReconcileError
from weightctl.controller.ports import Busy, Conflict, Done, NoOp, Outcome, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weightctl.adapters.shared.root import Root
    from weightctl.controller.ports import DropItem, Fence

    Act = Callable[[Root, DropItem, int], Outcome]


def drop(root: Root, batch: Sequence[DropItem], fence: Fence) -> list[Outcome]:
    """Remove exactly the named instances, quarantined ones too; one outcome an item."""
    return _each(root, batch, fence, _drop_one)


def quarantine(root: Root, batch: Sequence[DropItem], fence: Fence) -> list[Outcome]:
    """Take the named instances out of sight, keeping their bytes; one outcome an item."""
    return _each(root, batch, fence, _quarantine_one)


def sweep(root: Root) -> int:
    """Remove what killed writers left and synchronise the folders; the number of files removed.

    Best effort, a group at a time.  Raises MediumError, OSError when the root cannot be listed.
    """
    removed = 0
    with root.medium.opened() as root_fd:
        for group, group_fd in every_group(root_fd):
            with suppress(OSError):
                removed += _sweep_group(root, group, group_fd)
            _tidy_away(root, root_fd, group)
    return removed


def _tidy_away(root: Root, root_fd: int, group: str) -> None:
    """Remove an empty folder; one that only looks empty yet would take the proof with it."""
    with suppress(OSError):
        with group_folder(root_fd, group) as group_fd:
            root.settle(group, group_fd)
        with root.shaping:
            if remove_if_empty(root_fd, group):
                root.removed(group)


def _sweep_group(root: Root, group: str, group_fd: int) -> int:
    removed = 0
    for name in list_group(group_fd).every():
        if name.suffix != PARTIAL or root.foreign(name):
            continue
        if name.text not in root.claimed(group):
            removed += remove_leftover(group_fd, str(name)) is not None
    root.settle(group, group_fd)  # what a process showed that was killed before it could
    return removed


def _each(root: Root, batch: Sequence[DropItem], fence: Fence, act: Act) -> list[Outcome]:
    by_group: dict[str, list[int]] = {}
    for index, item in enumerate(batch):
        by_group.setdefault(encode_text(item.member.group_id), []).append(index)
    outcomes: list[Outcome | None] = [None] * len(batch)
    refused: Outcome = Unknown()
    try:
        with root.medium.opened() as root_fd:
            root.admit_at(root_fd, fence)
            for indexes in by_group.values():
                answers = _in_group(root, root_fd, [batch[index] for index in indexes], act)
                for index, answer in zip(indexes, answers, strict=True):
                    outcomes[index] = answer
    except (ReconcileError, OSError) as error:
        refused = outcome_from_error(error)
    return [refused if outcome is None else outcome for outcome in outcomes]


def _in_group(root: Root, root_fd: int, items: Sequence[DropItem], act: Act) -> list[Outcome]:
    group = encode_text(items[0].member.group_id)
    try:
        with group_folder(root_fd, group) as group_fd:
            outcomes = [_answer(root, item, group_fd, act) for item in items]
            outcomes = _settled(root, group, group_fd, outcomes)
    except FileNotFoundError:
        return [NoOp(instance_id=item.instance_id) for item in items]
    if act is _drop_one:
        _tidy_away(root, root_fd, group)
    return outcomes


def _answer(root: Root, item: DropItem, group_fd: int, act: Act) -> Outcome:
    try:
        return act(root, item, group_fd)
    except (ReconcileError, OSError) as error:
        return outcome_from_error(error)


def _settled(root: Root, group: str, group_fd: int, outcomes: list[Outcome]) -> list[Outcome]:
    """The outcomes, once what they say is on the medium; also of a removal that was before."""
    if not any(isinstance(outcome, Done | NoOp) for outcome in outcomes):
        return outcomes
    try:
        root.settle(group, group_fd)
    except OSError as error:
        lost = Unknown(detail=f"folder not synchronised: {error.strerror}")
        return [lost if isinstance(one, Done | NoOp) else one for one in outcomes]
    return outcomes


def _find(root: Root, item: DropItem, group_fd: int) -> StoredName | Outcome:
    """The file of the named instance, or why there is none."""
    member = item.member
    likely = StoredName(
        text=encode_text(member.key), sha256_hex=member.sha256.hex(), instance_id=item.instance_id
    )
    for suffix in ("", QUARANTINED, PARTIAL) if is_instance(item.instance_id) else ():
        name = likely.with_suffix(suffix)
        with suppress(FileNotFoundError):
            found = os.stat(str(name), dir_fd=group_fd, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode):
                return name
    names = root.names(encode_text(member.group_id), group_fd, likely.text)
    for name in names:
        if name.instance_id == item.instance_id and str(name) != str(likely):
            return name
    for name in names:
        if not name.suffix and str(name) != str(likely):
            return Conflict(detail=f"replica {name.instance_id} is there instead")
    return NoOp(instance_id=item.instance_id)


def _drop_one(root: Root, item: DropItem, group_fd: int) -> Outcome:
    name = _find(root, item, group_fd)
    if not isinstance(name, StoredName):
        return name
    group = encode_text(item.member.group_id)
    if root.is_read(group, item.instance_id):
        return Busy(detail="it is open for reading in this process")
    try:
        size_bytes = os.stat(str(name), dir_fd=group_fd, follow_symlinks=False).st_size
        root.changing(group)
        if name.suffix != PARTIAL:
            os.unlink(str(name), dir_fd=group_fd)
        elif root.foreign(name) or remove_leftover(group_fd, str(name)) is None:
            return Busy(detail="it is being written")
    except FileNotFoundError:
        return NoOp(instance_id=item.instance_id)
    root.moved(group, group_fd, gone=name, grown_bytes=-size_bytes)
    return Done(instance_id=item.instance_id)


def _quarantine_one(root: Root, item: DropItem, group_fd: int) -> Outcome:
    name = _find(root, item, group_fd)
    if not isinstance(name, StoredName):
        return name
    if name.suffix == QUARANTINED:
        return NoOp(instance_id=item.instance_id)
    if name.suffix == PARTIAL:
        return Busy(detail="it is being written, or a killed writer's leftover")
    hidden = name.with_suffix(QUARANTINED)
    group = encode_text(item.member.group_id)
    try:
        root.changing(group)
        rename_in(group_fd, str(name), str(hidden))
    except FileNotFoundError:
        return NoOp(instance_id=item.instance_id)
    root.moved(group, group_fd, gone=name, come=hidden)
    return Done(instance_id=item.instance_id)
