"""Bringing a replica in: begin, write, seal, publish, settle.  Layer: adapters, shared; blocking.

    begin    nothing the like is there; room is reserved; a locked `.partial` file is open
    write    bytes go into it, in any order (`Draft.write`)
    seal     size and digest are the member's; the file is on the medium
    publish  renamed to its final name, for a term and a medium that are still the same
    settle   the folders are on the medium too; from now on it is COMPLETE

Invariant: until `settle` the key stays claimed, so this process shows it as PARTIAL; whatever fails
before `publish` leaves nothing behind but what `discard` removes, or the next sweep after a kill.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from weightctl.adapters.shared.drafts import Draft, create_partial, remove_leftover
from weightctl.adapters.shared.files import rename_in
from weightctl.adapters.shared.folders import group_folder, keep_text, make_group_folder
from weightctl.adapters.shared.layout import PARTIAL, StoredName, encode_text
from weightctl.adapters.shared.translate import outcome_from_error
from weightctl.controller.errors import ReconcileError, TransientError
from weightctl.controller.ports import Busy, Conflict, Corrupt, Done, NoOp, Outcome, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weightctl.adapters.shared.root import Root
    from weightctl.adapters.shared.streaming import Copy, Move
    from weightctl.controller.core.observation import Member
    from weightctl.controller.ports import Fence


def standing(root: Root, members: Sequence[Member]) -> list[Outcome | None]:
    """What already answers a store of each member: NoOp, Conflict or Busy; None to go on.

    Asks once for a whole batch, by listings that show the folders' last changes.  Raises
    MediumError, OSError.
    """
    answers: list[Outcome | None] = []
    with root.medium.opened() as root_fd:
        for member in members:
            group, text = encode_text(member.group_id), encode_text(member.key)
            answers.append(None)
            if text in root.claimed(group):
                answers[-1] = Busy(detail="it is being written by this process")
                continue
            with suppress(FileNotFoundError), group_folder(root_fd, group) as group_fd:
                names = root.names(group, group_fd, text)
                answers[-1] = _answer_from(root, member, group_fd, names)
                if isinstance(answers[-1], NoOp):
                    root.settle(group, group_fd)
    return answers


def _answer_from(
    root: Root, member: Member, group_fd: int, names: Sequence[StoredName]
) -> Outcome | None:
    other: Outcome | None = None
    for name in names:
        try:
            size_bytes = os.stat(str(name), dir_fd=group_fd, follow_symlinks=False).st_size
        except FileNotFoundError:
            continue
        if name.suffix == PARTIAL and (
            root.foreign(name) or remove_leftover(group_fd, str(name)) is None
        ):
            other = other or Busy(detail="it is being written by another process")
        if name.suffix:
            continue
        if (name.sha256_hex, size_bytes) == (member.sha256.hex(), member.size_bytes):
            return NoOp(instance_id=name.instance_id)
        what = f"{size_bytes} bytes, recorded digest {name.sha256_hex}"
        other = Conflict(detail=f"replica {name.instance_id} has other content: {what}")
    return other


def begin(root: Root, member: Member) -> Draft | Outcome:
    """Open a draft of `member`, or say why there is nothing to write.

    Raises CapacityError, MediumError, TransientError, OSError.
    """
    group, text = encode_text(member.group_id), encode_text(member.key)
    name = StoredName(text=text, sha256_hex=member.sha256.hex(), instance_id=root.fresh_instance())
    if not root.claim(group, text, name.instance_id):
        return Busy(detail="it is being written by this process")
    draft: Draft | Outcome | None = None
    try:
        with root.medium.opened() as root_fd:
            draft = _answer(root, root_fd, member) or _open_draft(root, root_fd, member, name)
            return draft
    finally:
        if not isinstance(draft, Draft):
            root.unclaim(group, text)


def _answer(root: Root, root_fd: int, member: Member) -> Outcome | None:
    group, text = encode_text(member.group_id), encode_text(member.key)
    with suppress(FileNotFoundError), group_folder(root_fd, group) as group_fd:
        answer = _answer_from(root, member, group_fd, root.likely_names(group, group_fd, text))
        if isinstance(answer, NoOp):
            root.settle(group, group_fd)
        return answer
    return None


def _open_draft(root: Root, root_fd: int, member: Member, name: StoredName) -> Draft:
    partial_name, group = str(name.with_suffix(PARTIAL)), encode_text(member.group_id)
    with root.accounts() as room:
        reservation = room.reserve(root_fd, partial_name, member.size_bytes)
    group_fd = -1
    try:
        with root.shaping:
            making, durable, writer = partial(root.making, group), root.durable, root.medium.writer
            group_fd = make_group_folder(
                root_fd, member.group_id, durable=durable, writer=writer, making=making
            )
            keep_text(group_fd, member.key, durable=durable, writer=writer, making=making)
            fd = create_partial(group_fd, partial_name)
    except BaseException:
        if group_fd >= 0:
            os.close(group_fd)
        with root.accounts() as room:
            room.release(reservation)
        raise
    return Draft(
        member=member,
        group=group,
        name=name,
        group_fd=group_fd,
        fd=fd,
        reservation=reservation,
    )


def seal(root: Root, draft: Draft, sha256: bytes) -> Corrupt | None:
    """Check what was written against the member and bring the file to the medium.

    sha256: raw digest of the bytes that were written.  Raises OSError.
    """
    if sha256 != draft.member.sha256 or os.fstat(draft.fd).st_size != draft.member.size_bytes:
        return Corrupt(expected=draft.member.sha256, got=sha256)
    if root.durable:
        os.fsync(draft.fd)
    return None


def publish(root: Root, draft: Draft, fence: Fence) -> None:
    """Give a sealed draft its final name.

    Raises FencedError; MediumError or TransientError when the medium or the file has gone; OSError.
    """
    with root.medium.opened() as root_fd:
        root.admit_at(root_fd, fence)
        draft.check_still_there()
        with group_folder(root_fd, draft.group) as group_fd:
            if not os.path.samestat(os.fstat(group_fd), os.fstat(draft.group_fd)):
                raise TransientError(f"the folder of {draft.member.key!r} was replaced")
        root.changing(draft.group)
        rename_in(draft.group_fd, draft.partial_name, str(draft.name))


def settle(root: Root, drafts: Sequence[Draft]) -> list[Outcome]:
    """Bring the folders of published drafts to the medium, each once, and close the drafts.

    One outcome a draft: Done, or Unknown when its folder could not be synchronised.
    """
    failed: dict[str, OSError] = {}
    synced: set[str] = set()
    outcomes: list[Outcome] = []
    for draft in drafts:
        if draft.group not in synced | failed.keys():
            try:
                root.settle(draft.group, draft.group_fd)
                synced.add(draft.group)
            except OSError as error:
                failed[draft.group] = error
    for draft in drafts:
        size_bytes = draft.member.size_bytes
        root.moved(draft.group, draft.group_fd, come=draft.name, grown_bytes=size_bytes)
        _close(root, draft)
        if draft.group in failed:
            outcomes.append(Unknown(detail=f"folder not synchronised: {failed[draft.group]}"))
        else:
            outcomes.append(Done(instance_id=draft.name.instance_id, moved_bytes=size_bytes))
    return outcomes


def discard(root: Root, draft: Draft) -> None:
    """Remove a draft that is not to be published.  Never raises: a sweep finds what stays."""
    with suppress(OSError):
        os.unlink(draft.partial_name, dir_fd=draft.group_fd)
    _close(root, draft)


def _close(root: Root, draft: Draft) -> None:
    draft.close()
    with root.accounts() as room:
        room.release(draft.reservation)
    root.unclaim(draft.group, draft.name.text)


def bring_in(root: Root, member: Member, fence: Fence, read: Move, copy: Copy) -> Draft | Outcome:
    """All of it up to a published draft, which the caller settles with the rest of its batch.

    `read(view, offset)` fills the view from the source or raises; `copy` is bound `copy_digested`.
    """
    draft: Draft | Outcome | None = None
    try:
        draft = begin(root, member)
        if not isinstance(draft, Draft):
            return draft
        write = draft.write_through if root.durable else draft.write
        sha256 = copy(read, write, member.size_bytes)
        refused = seal(root, draft, sha256)
        if refused is not None:
            discard(root, draft)
            return refused
        publish(root, draft, fence)
        return draft
    except (ReconcileError, OSError) as error:
        if isinstance(draft, Draft):
            discard(root, draft)
        return outcome_from_error(error, expected_sha256=member.sha256)
    except BaseException:
        if isinstance(draft, Draft):
            discard(root, draft)
        raise
