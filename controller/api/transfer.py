"""Verbs that bring bytes in or out: `import`, `load`, and the report on snapshot files.

Layer: api.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from weightctl.controller.api import views
from weightctl.controller.core.records import Availability
from weightctl.controller.errors import WeightctlError
from weightctl.controller.weightstore.targets import IntoFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weightctl.controller.api import documents as doc
    from weightctl.controller.api import requests
    from weightctl.controller.api.app import App
    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.records import Snapshot
    from weightctl.controller.weightstore.options import Progress

    Emit = Callable[[Mapping[str, Any]], None]


async def import_(app: App, asked: requests.Import, emit: Emit) -> doc.Import:
    """Bring safetensors in as a new revision; the same call again resumes an interrupted one."""
    started_s = app.clock.monotonic_s()
    try:
        report = await app.weights.put(asked.identity, asked.source, progress=reporter(emit))
    except WeightctlError as error:
        if await _is_importing(app, asked.identity):
            error.todo = "; ".join(filter(None, (error.todo, _left_behind(app, asked.identity))))
        raise
    if app.controller is not None:
        app.controller.wake(asked.identity)
    return {
        "apiVersion": views.API_VERSION,
        "kind": "Import",
        **views.name(asked.identity),
        "tensors": report.tensor_count,
        "payloadCount": report.payload_count,
        "logicalBytes": report.logical_bytes,
        "movedBytes": report.moved_bytes,
        "tiers": list(report.tiers),
        "metadataGeneration": report.record.metadata_generation,
        "seconds": app.clock.monotonic_s() - started_s,
    }


async def _is_importing(app: App, identity: Identity) -> bool:
    with suppress(WeightctlError):
        record = (await app.store.get(identity=identity)).metadata
        return record.availability is Availability.IMPORTING
    return False


def _left_behind(app: App, identity: Identity) -> str:
    """What becomes of an import that has failed after it was recorded."""
    kept_s = app.policy.import_abandon_ms // 1000
    return (
        f"{identity} stays IMPORTING, and the import that began it goes on when it is run again;"
        f" {kept_s} s after the last attempt a controller removes it, as"
        f" `weightctl delete {identity}` does at once, and its name is then used up"
    )


async def load(app: App, asked: requests.Load, emit: Emit) -> doc.Load:
    """Write tensors as safetensors into a folder, under a lease, every object's digest checked."""
    started_s = app.clock.monotonic_s()
    report = await app.weights.load(
        asked.identity,
        asked.tensors,
        into=IntoFolder(path=asked.folder, replace=asked.force),
        holder=asked.holder,
        ttl_ms=app.lease_ttl_ms,
        progress=reporter(emit),
    )
    return {
        "apiVersion": views.API_VERSION,
        "kind": "Load",
        **views.name(asked.identity),
        "path": asked.folder,
        "files": list(report.files),
        "tensors": report.tensor_count,
        "sizeBytes": report.tensor_bytes,
        "verifiedBytes": report.verified_bytes,
        "bytesByTier": dict(report.bytes_by_tier),
        "seconds": app.clock.monotonic_s() - started_s,
    }


async def snapshot(action: str, file: str, weights: Snapshot) -> doc.SnapshotReport:
    """A snapshot file that was saved or restored."""
    return await to_thread.run_sync(views.snapshot, action, Path(file), weights)


def reporter(emit: Emit) -> Callable[[Progress], None]:
    """Progress of a facade call as frames; what it begins to wait for is noted once."""
    noted: dict[str, str] = {}

    def report(progress: Progress) -> None:
        stage = f"{progress.stage} {progress.tier}".strip()
        said: dict[str, object] = {
            "stage": stage,
            "done": progress.done_bytes,
            "total": progress.total_bytes,
            "unit": "bytes",
        }
        if progress.waits:
            said["waits"] = progress.waits
            if noted.get(stage) != progress.waits:
                noted[stage] = progress.waits
                emit({"note": f"{stage} waits: {progress.waits}"})
        emit({"progress": said})

    return report
