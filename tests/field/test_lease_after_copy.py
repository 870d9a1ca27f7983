"""On every path of a load the lease is looked at after the last byte, and nothing of it is used."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from tests.support.rig import IDENTITY, MANIFEST_KEY, Rig, rig
from weightctl.controller.core.ranges import TensorSlice
from weightctl.controller.errors import ErrorCode, WeightError
from weightctl.controller.weightstore.mover import LoadReport
from weightctl.controller.weightstore.targets import Into, IntoArrays, IntoBuffers, IntoFolder

PATHS = ("arrays", "buffers", "folder", "slice", "mapped")


def asked(parts: Rig, path: str, folder: Path) -> dict[str, Any]:
    """The arguments of a load of that kind."""
    sizes = {name: len(data) for name, (_, _, data) in parts.model.items()}
    largest = max(sizes, key=lambda name: sizes[name])
    into: dict[str, Into] = {
        "folder": IntoFolder(path=folder / "out"),
        "buffers": IntoBuffers(buffers={name: bytearray(size) for name, size in sizes.items()}),
    }
    wanted = [TensorSlice(tensor_id=largest, dim=0, start=0, stop=1)] if path == "slice" else None
    return {"tensors": wanted, "into": into.get(path, IntoArrays())}


@pytest.mark.parametrize("path", PATHS)
async def test_a_lease_that_died_during_the_last_read_fails_the_load(
    tmp_path: Path, path: str
) -> None:
    async with rig(tmp_path, workers=1) as parts:
        await parts.weights.put(IDENTITY, parts.source)
        if path == "mapped":
            await map_payloads(parts, tmp_path)
        reads: list[str] = []

        async def count(key: str) -> None:
            reads.append(key)

        parts.hot.faults.before_read = count
        whole = await parts.weights.load(IDENTITY, **asked(parts, path, tmp_path / "whole"))
        assert bool(whole.mapped_bytes) is (path == "mapped")
        last, seen = len(reads), list(reads)
        reads.clear()

        async def dies(key: str) -> None:
            reads.append(key)
            if len(reads) == last:
                parts.clock.jump_wall(3600)

        parts.hot.faults.before_read = dies
        reports: list[LoadReport] = []
        with pytest.raises(WeightError) as caught:
            reports.append(
                await parts.weights.load(
                    IDENTITY, ttl_ms=30_000, **asked(parts, path, tmp_path / "cut")
                )
            )
        assert caught.value.code is ErrorCode.LEASE_EXPIRED
        assert reads == seen, "every byte had been read"
        assert not reports, "and none was handed out"
        assert not await to_thread.run_sync(published, tmp_path / "cut" / "out")
        assert parts.lease_count() == 0


async def map_payloads(parts: Rig, folder: Path) -> None:
    """Let the hot tier offer its payloads as files, so that only the manifest is read."""

    def write() -> dict[str, str]:
        paths = {}
        for number, (key, content) in enumerate(parts.hot.content.items()):
            path = folder / f"payload-{number}"
            path.write_bytes(content)
            paths[key] = str(path)
        return paths

    paths = await to_thread.run_sync(write)
    profile = parts.hot.profile
    capabilities = replace(profile.capabilities, mappable=True)
    parts.hot.profile = replace(profile, capabilities=capabilities)
    parts.hot.map_path = lambda member: (  # type: ignore[method-assign]
        None if member.key == MANIFEST_KEY else paths[member.key]
    )


def published(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*")]
