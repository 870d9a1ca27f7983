"""Which medium a tier had when it was first used.  Layer: adapters, shared; blocking.

Owns the file of a persistent tier in the controller's state directory that keeps the medium's uuid.
Invariant: what such a file says is known or the tier is not used; two tiers of one state directory
never have the same medium.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from weightctl.adapters.shared.files import (
    FOLDER_FLAGS,
    locked,
    make_path,
    sync_folder,
    write_small,
)
from weightctl.controller.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

UUID = re.compile(r"[0-9A-Za-z-]{1,64}")
_FOLDER_FLAGS = FOLDER_FLAGS & ~os.O_NOFOLLOW  # the folder itself may be reached by a link


def read_remembered(path: Path | None) -> str:
    """The uuid kept in a file of the state directory, empty when there is no such file.

    Raises OSError, ValueError for a file that is emptied or damaged: what it said is not known, so
    nothing may be begun anew in its place.
    """
    if path is None:
        return ""
    try:
        uuid = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return ""
    if not UUID.fullmatch(uuid):
        raise ValueError(f"it holds {uuid[:80]!r}, which is no uuid")
    return uuid


def settle_remembered(path: Path) -> None:
    """Bring the name of a file that is there to the medium, whoever wrote it.  Raises OSError."""
    sync_folder(path.parent)


def refuse_second_name(path: Path, uuid: str) -> None:
    """Raise ConfigError when another tier of this state directory has that medium.  OSError.

    One copy of a replica would count as two, and a repair to two copies would do nothing.
    """
    for other in sorted(path.parent.glob(f"*{path.suffix}")):
        if other != path and other.read_bytes().strip() == uuid.encode():
            raise ConfigError(
                f"the tier {path.stem!r} lies where the tier {other.stem!r} does (medium {uuid})",
                "one copy of a replica would count as two",
                f"give it a place of its own; if {other.stem!r} was renamed, remove {other}",
            )


def write_remembered(path: Path, uuid: str, *, alone: bool = False) -> None:
    """Keep the uuid of a medium, durably.  Raises OSError.

    alone: raise ConfigError, as `refuse_second_name`, also where two tiers begin at once.
    """
    make_path(path.parent, durable=True)
    folder_fd = os.open(path.parent, _FOLDER_FLAGS)
    try:
        if alone:
            with locked(folder_fd):
                refuse_second_name(path, uuid)
                write_small(folder_fd, path.name, uuid.encode("ascii"), durable=True)
            return
        write_small(folder_fd, path.name, uuid.encode("ascii"), durable=True)
    finally:
        os.close(folder_fd)
