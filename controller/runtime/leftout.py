"""Plugins that no start uses until somebody has looked at them.  Layer: runtime.

One that held up the process and could not be interrupted has ended it; used again, it would end the
next one as well.  A note in the state directory says so.  It holds for that package in that version
and only for as long as its file is there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weightctl.controller.runtime.holding import Owner

FOLDER = "left-out"
_BYTES_MAX = 1024 * 1024


def leave_out(state_dir: str, owner: Owner, stack: str) -> Path:
    """Note that the owner's code must not be used; the file.  Raises OSError."""
    file = Path(state_dir, FOLDER, f"{owner.name}.json")
    file.parent.mkdir(exist_ok=True)
    note = {"plugin": owner.plugin, "package": owner.package, "stack": stack}
    draft = file.with_suffix(".new")  # the process ends soon: half a note would name nothing
    draft.write_text(json.dumps(note, indent=1))
    return draft.replace(file)


class LeftOut:
    """The notes of a state directory.  Reads files."""

    def __init__(self, state_dir: str) -> None:
        self._notes = {file: _read(file) for file in Path(state_dir, FOLDER).glob("*.json")}

    def why(self, owner: Owner) -> str:
        """Why the owner's code must not be used, and what to do; empty when it may."""
        for file, code in self._notes.items():
            if file.stem == owner.name and code == (owner.plugin, owner.package):
                return (
                    f"it held up the process, could not be interrupted and ended it ({file} says"
                    f" where); it is left out until {owner.package or 'its package'} has another"
                    " version or that file is removed"
                )
        return ""


def _read(file: Path) -> tuple[object, object]:
    """Which code it names; none where the file is damaged, or no file of ours."""
    try:
        if not file.is_file():  # a pipe would keep its reader
            return None, None
        with file.open("rb") as stream:
            note = json.loads(stream.read(_BYTES_MAX))
        return note["plugin"], note["package"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None, None
