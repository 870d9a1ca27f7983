"""Whether the files of a cluster can be used from here, told without a change.  Layer: a tier.

The Master names no `root_fs_dir`; but weightctl's own small objects have files there, too, whose
paths it tells.  Invariant: nothing is told of a cluster in which no such object is.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from weightctl.adapters.mooncake.master.replicas import in_memory
from weightctl.adapters.mooncake.master.serving import threaded
from weightctl.adapters.mooncake.ownership.small import OURS
from weightctl.controller.errors import ReconcileError
from weightctl.controller.ports import Check

if TYPE_CHECKING:
    from weightctl.adapters.mooncake.connection import Connection
    from weightctl.adapters.mooncake.root_fs.files import DiskFiles


async def folder_of(connection: Connection, files: DiskFiles) -> list[Check]:
    """What is told of the folder; nothing when nobody answers or there is nothing to see."""
    name = f"cluster {connection.options.cluster}: root_fs_dir"
    try:
        paths = await _paths(connection)
    except ReconcileError:
        return []
    if not paths:
        return []
    path = next(filter(None, paths), "")
    if not path:
        return [
            Check(
                name=name,
                ok=True,
                detail="none of weightctl's own objects has a file: the Master has no"
                " --root_fs_dir, or they were put before this tier was configured",
                todo="see that the Master runs with --root_fs_dir=DIR",
            )
        ]
    folder = Path(path).parents[2]
    try:
        await files.look([path])
    except ReconcileError as error:
        return [Check(name=name, ok=False, detail=f"{error.what}: {error.why}", todo=error.todo)]
    return [Check(name=name, ok=True, detail=f"the Master's files are seen here, in {folder}")]


async def _paths(connection: Connection) -> list[str]:
    """For each of weightctl's small objects in memory the path of its file, empty for none."""
    keys = await connection.serving.all_keys(OURS)
    admin = connection.serving.admin
    entries = await threaded(lambda: admin.query(admin.health(), keys)) if keys else {}
    there = [entries[key] for key in keys if in_memory(entries.get(key))]
    return [entry.disk[0].place if entry.disk else "" for entry in there]
