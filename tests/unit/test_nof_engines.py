"""The worker engines of the nof tier, called directly: locks, claims, real devices, descriptors."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from tests.support.nof_media import FENCE, content_of, member
from weightctl.adapters.nof.access import DeviceOptions
from weightctl.adapters.nof.data_engine import DataEngine
from weightctl.adapters.nof.device import Ticket
from weightctl.adapters.nof.index_engine import IndexEngine
from weightctl.adapters.nof.layout import aligned_buffer
from weightctl.adapters.nof.medium import open_medium
from weightctl.adapters.nof.pieces import Span, cut
from weightctl.controller.errors import BusyError, ConfigError, TransientError
from weightctl.controller.ports import Done

MIB = 1024 * 1024
UUID = b"nof-engine-tests"
ORDERS = count(1)


def _index(path: Path | str, **options: object) -> IndexEngine:
    base = {"path": str(path), "uuid": UUID, "size_bytes": 16 * MIB} | options
    return IndexEngine(DeviceOptions(**base))  # type: ignore[arg-type]


def _data(path: Path | str) -> DataEngine:
    return DataEngine(aligned_buffer(2 * MIB), path=str(path), writable=True)


def _reserve(index: IndexEngine, key: str, content: bytes) -> Ticket:
    (ticket,) = index.reserve(b"", [member(key, content)], FENCE, next(ORDERS), [])
    assert isinstance(ticket, Ticket)
    return ticket


def _write(index: IndexEngine, data: DataEngine, ticket: Ticket, content: bytes) -> None:
    """As the tier does it, up to the commit."""
    superblock = index.info(b"")
    data.begin(superblock.uuid, ticket.claim, ticket.extents)
    span = Span(ticket.serial, len(content), ticket.extents)
    for piece in cut(superblock.geometry, [span], MIB):
        for part in piece:
            end = part.buffer_offset + part.size_bytes
            data._buffer[part.buffer_offset : end] = content[part.offset :][: part.size_bytes]
        data.write(piece)
    assert data.digests() == {ticket.serial: hashlib.sha256(content).digest()}


def _store(index: IndexEngine, data: DataEngine, key: str, content: bytes) -> str:
    ticket = _reserve(index, key, content)
    _write(index, data, ticket, content)
    data.end()
    (outcome,) = index.commit(b"", [ticket.serial], FENCE)
    assert isinstance(outcome, Done)
    return outcome.instance_id


def _content(index: IndexEngine, data: DataEngine, key: str) -> bytes:
    superblock = index.info(b"")
    (replica,) = index.locate(b"", [(member(key, b"").group_id, key)])
    assert replica is not None
    got = b""
    span = Span(replica.serial, replica.size_bytes, replica.extents)
    for piece in cut(superblock.geometry, [span], MIB):
        data.read(superblock.uuid, piece, digest=True)
        for part in piece:
            got += data._buffer[part.buffer_offset : part.buffer_offset + part.size_bytes]
    assert data.digests() == {replica.serial: replica.sha256}
    return got


def _kill_index_worker(index: IndexEngine) -> None:
    """Its descriptor is closed and nothing else; the next request opens the device anew."""
    assert index.access._device is not None
    index.access._device._medium.close()
    index.access._device = None


def test_bytes_go_to_the_device_and_come_back(tmp_path: Path) -> None:
    index, data = _index(tmp_path / "d"), _data(tmp_path / "d")
    content = content_of("k", 3 * MIB + 5)
    _store(index, data, "k", content)
    assert _content(index, data, "k") == content


def test_a_writer_of_an_older_claim_cannot_begin(tmp_path: Path) -> None:
    index, data = _index(tmp_path / "d"), _data(tmp_path / "d")
    ticket = _reserve(index, "k", bytes(8192))
    _kill_index_worker(index)
    superblock = index.info(b"")
    with pytest.raises(TransientError, match="opened anew"):
        data.begin(superblock.uuid, ticket.claim, ticket.extents)
    with pytest.raises(TransientError, match="no blocks are locked"):
        data.write([])
    assert index.capacity(b"")[0] == 0


def test_a_writer_that_began_keeps_its_blocks_from_a_new_index_until_it_ends(
    tmp_path: Path,
) -> None:
    index, data = _index(tmp_path / "d"), _data(tmp_path / "d")
    ticket = _reserve(index, "k", bytes(8192))
    _write(index, data, ticket, bytes(8192))
    _kill_index_worker(index)
    assert index.capacity(b"")[0] == 8192
    _store(index, _data(tmp_path / "d"), "j", content_of("j", 100_000))
    data.end()
    assert index.capacity(b"")[0] == 102_400
    assert _content(index, data, "j") == content_of("j", 100_000)


def test_a_writer_that_was_given_up_and_comes_late_is_avoided(tmp_path: Path) -> None:
    index, data = _index(tmp_path / "d"), _data(tmp_path / "d")
    ticket = _reserve(index, "k", bytes(8192))
    index.abort(b"", [ticket.order])
    data.begin(UUID, ticket.claim, ticket.extents)  # its request was still on the way
    other = _reserve(index, "k", bytes(8192))
    assert not set(other.extents) & set(ticket.extents)
    data.end()


def test_two_writers_never_have_the_same_blocks(tmp_path: Path) -> None:
    index, data = _index(tmp_path / "d"), _data(tmp_path / "d")
    ticket = _reserve(index, "k", bytes(8192))
    data.begin(UUID, ticket.claim, ticket.extents)
    with pytest.raises(TransientError, match="another writer"):
        _data(tmp_path / "d").begin(UUID, ticket.claim, ticket.extents)


@pytest.mark.parametrize("stop", ["kill", "stop"])
def test_a_killed_writer_is_over_and_a_stopped_one_is_not(tmp_path: Path, stop: str) -> None:
    index = _index(tmp_path / "d")
    ticket = _reserve(index, "k", bytes(8192))
    script = (
        "import sys, time; from weightctl.adapters.nof.data_engine import DataEngine\n"
        "engine = DataEngine(memoryview(bytearray(4096)), path=sys.argv[1], writable=True)\n"
        f"engine.begin({UUID!r}, {ticket.claim}, {ticket.extents!r})\n"
        "print('begun', flush=True); time.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, str(tmp_path / "d")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"begun\n"
        if stop == "stop":
            writer.send_signal(signal.SIGSTOP)
            index.abort(b"", [ticket.order])
            assert index.capacity(b"")[0] == 8192
        writer.kill()
        writer.wait()
    index.abort(b"", [ticket.order])
    assert index.capacity(b"")[0] == 0


def test_a_killed_process_amid_stores_loses_nothing_acknowledged(tmp_path: Path) -> None:
    script = (
        "import sys; from tests.unit.test_nof_engines import _data, _index, _store, content_of\n"
        "index, data = _index(sys.argv[1]), _data(sys.argv[1])\n"
        "for number in range(10**6):\n"
        "    key = f'{sys.argv[2]}-{number}'\n"
        "    _store(index, data, key, content_of(key, 1000 * (number % 40)))\n"
        "    print(key, flush=True)\n"
    )
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, *sys.path])}
    told: list[str] = []
    for life in range(4):
        command = [sys.executable, "-c", script, str(tmp_path / "d"), str(life)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, env=environment, text=True
        ) as process:
            assert process.stdout is not None
            told += [process.stdout.readline().strip() for _ in range(5 + life)]
            process.kill()
            told += [line.strip() for line in process.stdout if line.endswith("\n")]
    index, data = _index(tmp_path / "d"), _data(tmp_path / "d")
    assert len(told) >= 26
    for key in told:
        assert _content(index, data, key) == content_of(key, 1000 * (int(key[2:]) % 40))
    items = index.inventory(b"", None)[member("", b"").group_id]
    assert len(told) <= len(items) <= len(told) + 4
    blocks = sum(-(-entry.size_bytes // 4096) for entry in items)
    assert index.capacity(b"")[0] == 4096 * blocks


def test_a_thousand_openings_leave_no_descriptor(tmp_path: Path) -> None:
    index, data = _index(tmp_path / "d", size_bytes=4 * MIB), _data(tmp_path / "d")
    _store(index, data, "k", b"one")
    index.close()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(1000):
        index.info(UUID)
        index.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert index.info(UUID).claim == 1002


def test_one_device_has_one_index_writer(tmp_path: Path) -> None:
    index = _index(tmp_path / "d")
    index.info(b"")
    with pytest.raises(BusyError, match="another process writes"):
        _index(tmp_path / "d").info(b"")
    index.close()
    _index(tmp_path / "d").info(b"")


@contextmanager
def _loop_device(image: Path) -> Iterator[str]:
    losetup = shutil.which("losetup")
    if losetup is None or os.geteuid() != 0 or not Path("/dev/loop-control").exists():
        pytest.skip("needs root, losetup and /dev/loop-control to attach a loop device")
    image.write_bytes(bytes(16 * MIB))
    attach = [losetup, "--find", "--show", str(image)]
    done = subprocess.run(attach, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no loop device can be attached here: {done.stderr.strip()}")
    device = done.stdout.strip()
    try:
        yield device
    finally:
        subprocess.run([losetup, "--detach", device], check=True)


def test_a_block_device_is_used_like_a_file_and_is_the_kernels_only_once(tmp_path: Path) -> None:
    with _loop_device(tmp_path / "image") as device:
        with pytest.raises(ConfigError, match="blank"):
            _index(device).info(b"")
        index, data = _index(device, format=True), _data(device)
        content = content_of("k", MIB + 5)
        _store(index, data, "k", content)
        with pytest.raises(BusyError, match="exclusively"):
            open_medium(device, writable=True, exclusive=True)
        index.close()
        again = _index(device)
        assert again.info(b"").geometry.total_bytes == 16 * MIB
        assert _content(again, data, "k") == content
        again.close()
        if data._medium is not None:
            assert data._medium.direct
            data._medium.close()


def test_a_device_without_direct_io_is_used_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "O_DIRECT", 0o100000000)  # no file system knows it
    opened = os.open

    def refuse(path: str, flags: int, *args: int, **kwargs: int) -> int:
        if flags & 0o100000000:
            raise OSError(22, "Invalid argument")
        return opened(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    index, data = _index(tmp_path / "d"), _data(tmp_path / "d")
    content = content_of("k", 3 * MIB + 5)
    _store(index, data, "k", content)
    assert data._medium is not None
    assert not data._medium.direct
    assert _content(index, data, "k") == content


def test_a_device_that_was_moved_after_a_crash_is_not_made_anew(tmp_path: Path) -> None:
    """A kill between giving a new device its name and taking its first one leaves both."""
    path, moved = tmp_path / "device", tmp_path / "moved"
    first = _index(path)
    first.info(b"")
    first.close()
    (tmp_path / "device.new").hardlink_to(path)
    path.rename(moved)
    with moved.open("r+b") as file:
        file.seek(-4096, os.SEEK_END)
        file.write(b"replica " * 512)
    before = moved.read_bytes()
    second = _index(path)
    second.info(b"")
    second.close()
    assert moved.read_bytes() == before
    assert not (tmp_path / "device.new").exists()
