"""The folders of the groups under a root.  Layer: adapters, shared; blocking.

Owns making, finding, naming and removing them.  Invariant: a folder goes only when no replica,
whole, partial or quarantined, and no foreign file is left in it; a text that is too long for a file
name is on disk before the first file that is named by its digest.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from weightctl.adapters.shared.files import (
    folder,
    open_or_make_folder,
    read_small,
    write_small,
)
from weightctl.adapters.shared.layout import (
    GROUPS,
    decode_text,
    encode_text,
    is_hashed,
    is_text_file,
    text_file,
)
from weightctl.controller.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def group_folder(root_fd: int, group: str) -> Iterator[int]:
    """Descriptor of the folder of an encoded group id.  Raises FileNotFoundError, OSError."""
    with folder(root_fd, GROUPS) as groups_fd, folder(groups_fd, group) as group_fd:
        yield group_fd


def make_group_folder(
    root_fd: int, group_id: str, *, durable: bool, writer: str, making: Callable[[], None]
) -> int:
    """Descriptor of the folder of a group, made when it is not there.  Raises OSError.

    durable: a long group id is on the medium; writer: as in `write_small`; making: called before a
    name is made, which is not on the medium before its caller settles it.
    """
    groups_fd = open_or_make_folder(root_fd, GROUPS, making)
    try:
        keep_text(groups_fd, group_id, durable=durable, writer=writer, making=making)
        return open_or_make_folder(groups_fd, encode_text(group_id), making)
    finally:
        os.close(groups_fd)


def keep_text(
    folder_fd: int, text: str, *, durable: bool, writer: str, making: Callable[[], None]
) -> None:
    """Lay down the text of a name that has to be hashed; nothing to do for others."""
    encoded = encode_text(text)
    if is_hashed(encoded):
        raw = text.encode("utf-8", "surrogateescape")
        if read_small(folder_fd, text_file(encoded)) != raw:
            making()
            write_small(folder_fd, text_file(encoded), raw, durable=durable, writer=writer)


def text_of(folder_fd: int, encoded: str) -> str:
    """The group id or key that an encoded name stands for.

    Raises TransientError when the file that holds a long text is gone, OSError.
    """
    text = decode_text(encoded)
    if text is not None:
        return text
    raw = read_small(folder_fd, text_file(encoded))
    text = None if raw is None else raw.decode("utf-8", "surrogateescape")
    if text is None or encode_text(text) != encoded:
        raise TransientError(
            f"the full name of {encoded!r} cannot be read",
            f"{text_file(encoded)!r} is missing or damaged",
            "store a member of that name again, or remove the files named so",
        )
    return text


def group_id_of(root_fd: int, group: str) -> str:
    """The group id of an encoded one; raises as `text_of`."""
    with folder(root_fd, GROUPS) as groups_fd:
        return text_of(groups_fd, group)


def every_group(root_fd: int) -> Iterator[tuple[str, int]]:
    """Encoded id and open folder of each group; a folder is closed when the next is asked for."""
    names: list[str] = []
    with (
        suppress(FileNotFoundError),
        folder(root_fd, GROUPS) as groups_fd,
        os.scandir(groups_fd) as entries,
    ):
        names = sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
    for name in names:
        with suppress(FileNotFoundError), group_folder(root_fd, name) as group_fd:
            yield name, group_fd


def remove_if_empty(root_fd: int, group: str) -> bool:
    """Remove the folder of a group when nothing but texts of long names is in it."""
    with suppress(FileNotFoundError), group_folder(root_fd, group) as group_fd:
        texts = []
        with os.scandir(group_fd) as entries:
            for entry in entries:
                if not is_text_file(entry.name):
                    return False
                texts.append(entry.name)
        for name in texts:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=group_fd)
    with suppress(OSError), folder(root_fd, GROUPS) as groups_fd:
        os.rmdir(group, dir_fd=groups_fd)  # refuses when a writer was quicker
        with suppress(FileNotFoundError):
            os.unlink(text_file(group), dir_fd=groups_fd)
        return True
    return False
