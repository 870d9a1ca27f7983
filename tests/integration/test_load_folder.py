"""Load into folders and files: no other file is touched, a name appears whole or not at all."""

import errno
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.models import random_tensors, write_model
from tests.support.rig import IDENTITY, Rig, rig
from weightctl.controller.errors import TargetError, TargetExistsError
from weightctl.controller.weightstore.targets import IntoFolder


@asynccontextmanager
async def published(folder: Path) -> AsyncIterator[Rig]:
    """Open a rig whose model is imported."""
    async with rig(folder) as parts:
        await parts.weights.put(IDENTITY, parts.source)
        yield parts


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def mark_of(path: Path) -> tuple[int, int, int, int]:
    """Tell one file, and one content of it, from another."""
    status = path.lstat()
    return status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns


def _of_another_model(path: Path) -> None:
    write_model(path, {"x": ("U8", (1,), b"x")})


def _of_the_same_shape(path: Path) -> None:
    write_model(path, {name: (d, s, bytes(len(b))) for name, (d, s, b) in random_tensors().items()})


def _a_link_to_nothing(path: Path) -> None:
    path.symlink_to("nothing")


def _a_pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    "place", [_of_another_model, _of_the_same_shape, _a_link_to_nothing, _a_pipe]
)
@pytest.mark.parametrize("named", [False, True])
async def test_a_file_with_other_content_is_replaced_only_when_asked_for(
    tmp_path: Path, place: Callable[[Path], None], named: bool
) -> None:
    async with published(tmp_path) as parts:
        out = tmp_path / "other"
        path = out / ("mine.safetensors" if named else "model.safetensors")
        await to_thread.run_sync(out.mkdir)
        await to_thread.run_sync(place, path)
        before = await to_thread.run_sync(mark_of, path)
        target = path if named else out
        with pytest.raises(TargetExistsError) as caught:
            await parts.weights.load(IDENTITY, into=IntoFolder(path=target))
        assert str(path) in caught.value.what
        assert await to_thread.run_sync(mark_of, path) == before
        assert await to_thread.run_sync(os.listdir, out) == [path.name]
        await parts.weights.load(IDENTITY, into=IntoFolder(path=target, replace=True))
        source = await to_thread.run_sync(parts.source.read_bytes)
        assert await to_thread.run_sync(files_in, out) == {path.name: source}


async def test_a_file_that_is_there_already_is_not_written_again(tmp_path: Path) -> None:
    async with published(tmp_path) as parts:
        into = IntoFolder(path=tmp_path / "out", file_bytes=4000)
        report = await parts.weights.load(IDENTITY, into=into)
        before = [await to_thread.run_sync(Path(name).stat) for name in report.files]
        again = await parts.weights.load(IDENTITY, into=into)
        after = [await to_thread.run_sync(Path(name).stat) for name in again.files]
        assert [status.st_ino for status in after] == [status.st_ino for status in before]
        assert len(await to_thread.run_sync(os.listdir, tmp_path / "out")) == len(report.files)


async def test_a_name_taken_while_the_bytes_flow_is_left_alone(tmp_path: Path) -> None:
    async with published(tmp_path) as parts:
        path = tmp_path / "late.safetensors"

        async def take(key: str) -> None:
            await to_thread.run_sync(path.write_bytes, b"somebody else's")

        parts.hot.faults.before_read = take
        with pytest.raises(TargetExistsError):
            await parts.weights.load(IDENTITY, into=IntoFolder(path=path))
        assert await to_thread.run_sync(path.read_bytes) == b"somebody else's"


async def test_an_index_of_other_files_is_left_alone(tmp_path: Path) -> None:
    """With our one file beside it, it would name files that are not there."""
    async with published(tmp_path) as parts:
        out = tmp_path / "out"
        await to_thread.run_sync(out.mkdir)
        await to_thread.run_sync((out / "model.safetensors.index.json").write_bytes, b"{}")
        with pytest.raises(TargetError, match="another model"):
            await parts.weights.load(IDENTITY, into=IntoFolder(path=out, replace=True))


async def test_where_there_are_no_links_a_file_gets_its_name_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    async with published(tmp_path) as parts:
        report = await parts.weights.load(IDENTITY, into=IntoFolder(path=tmp_path / "out"))
        assert await to_thread.run_sync(os.listdir, tmp_path / "out") == ["model.safetensors"]
        assert report.files
