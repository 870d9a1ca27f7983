"""Parking beside a real Mooncake: whatever others put onto the passing segment outlives it."""

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from tests.support.mooncake.lab import MIB, PATIENT, Cluster, cluster, needs_wheel, until
from tests.support.mooncake.tiers import REAL, settled
from weightctl.adapters.conformance.suite.material import (
    content_of,
    drop_item,
    fence,
    kinds,
    states,
    store,
)
from weightctl.adapters.mooncake.master.admin import Segment
from weightctl.adapters.mooncake.parking.lot import Lot
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.core.observation import Member, MemberState

pytestmark = needs_wheel

WAIT_S = 180.0
OURS = 15 * MIB
_STRANGER = """
import ctypes, json, os, sys
os.environ["MC_RPC_TIMEOUT_MS"] = "60000"
from mooncake import store as library
store = library.MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 64 << 20, "tcp", "", sys.argv[1]) == 0
size = 256 << 10
memory = ctypes.create_string_buffer(b"x" * size, size)
store.register_buffer(ctypes.addressof(memory), size)
def config_of(segment, pinned):
    config = library.ReplicateConfig()
    config.preferred_segment, config.with_hard_pin = segment, pinned
    return config
class Stranger:
    def put(self, key, size, segment, pinned):
        return store.put(key, b"f" * size, config_of(segment, pinned))
    def begin(self, key, segment):
        return store.batch_put_session_start([key], [size], config_of(segment, False))[0]
    def end(self, key):
        pointers = [[ctypes.addressof(memory)]]
        store.batch_put_from_multi_buffer_ranges([key], pointers, [[size]], [[0]])
        return store.batch_put_session_end([key])[0]
    def sizes(self, keys):
        return [len(store.get(key)) for key in keys]
for line in sys.stdin:
    verb, *words = json.loads(line)
    print(json.dumps(getattr(Stranger(), verb)(*words)), flush=True)
"""
_SESSION = 256 * 1024


class Stranger:
    """Another client of the cluster, in a process of its own."""

    def __init__(self, real: Cluster) -> None:
        self._asking = anyio.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _STRANGER, real.master],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    async def ask(self, verb: str, *words: object) -> Any:
        async with self._asking:
            return await to_thread.run_sync(self._ask, [verb, *words])

    def _ask(self, words: Sequence[object]) -> Any:
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        asked.write(json.dumps(words) + "\n")
        asked.flush()
        return json.loads(answers.readline())


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with cluster(folder, PATIENT, hosts=1, segment_mib=128) as made:
        yield made


@pytest.fixture
def stranger(real: Cluster) -> Iterator[Stranger]:
    with closing(Stranger(real)) as made:
        yield made


def memory(real: Cluster, folder: Path) -> AbstractAsyncContextManager[MooncakeTier]:
    return settled(real, folder, library=REAL)


async def put_by_an_earlier_client(real: Cluster, folder: Path) -> Member:
    async with memory(real, folder) as tier:
        (member,) = await store(tier, {"w/0": content_of(OURS)})
        await to_thread.run_sync(real.settle)
    return member


@pytest.fixture
def when_open(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Do something once, while the lot takes new objects: before or after ours have come."""

    def install(act: Callable[[str], Awaitable[None]], *, after: bool = False) -> None:
        fill, done = Lot._fill, anyio.Event()

        async def filled(self: Lot, segments: Sequence[Segment]) -> bool:
            if not after and not done.is_set():
                done.set()
                await act(self._name)
            left = await fill(self, segments)
            if after and not left and not done.is_set():
                done.set()
                await act(self._name)
            return left

        monkeypatch.setattr(Lot, "_fill", filled)

    return install


async def test_nothing_that_others_put_onto_the_lot_is_lost(
    real: Cluster, tmp_path: Path, stranger: Stranger, when_open: Callable[..., None]
) -> None:
    """Not what takes the room first, what is pinned, what cannot be asked for, nor a late end."""
    plain = {"kv/large": 8 * MIB, "kv,comma": 1000, "kv\nline": 1000, "kv": 1000}
    member = await put_by_an_earlier_client(real, tmp_path)

    async def puts(lot: str) -> None:
        assert await stranger.ask("begin", "kv/late", lot) == 0
        assert await stranger.ask("put", "kv/pinned", 1000, lot, True) == 0
        for key, size_bytes in plain.items():
            assert await stranger.ask("put", key, size_bytes, lot, False) == 0

    when_open(puts)
    async with memory(real, tmp_path) as tier:
        waited: list[Lot] = []

        async def end_late() -> None:
            waited.append(await waits_for(tier, "unfinished puts"))
            assert await stranger.ask("end", "kv/late") == 0

        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(end_late)
                assert kinds(await tier.drop([await drop_item(tier, member)], fence())) == ["Done"]
        assert waited
        assert await states(tier, member) == [MemberState.ABSENT]
        await expect_all(stranger, {**plain, "kv/pinned": 1000, "kv/late": _SESSION})
    await expect_all(stranger, {**plain, "kv/pinned": 1000, "kv/late": _SESSION})
    await expect_all(stranger, {"w/0": OURS})


def segments(real: Cluster) -> dict[str, str]:
    """Endpoint of each mounted segment, by its name."""
    rows = json.loads(real.get("/get_segments_detail"))["segments"]
    return {row["segment_name"]: row["te_endpoint"] for row in rows}


async def waits_for(tier: MooncakeTier, why: str) -> Lot:
    """The lot, once it says that this is why it stays."""
    while True:
        lot = tier._connection.lot
        if lot is not None and why in lot.why:
            return lot
        await anyio.sleep(0.1)


async def expect_all(stranger: Stranger, expected: dict[str, int]) -> None:
    """All can be read; a client that is held up for longer than its lease reads again."""
    left = expected
    with anyio.fail_after(WAIT_S):
        while left:
            sizes = await stranger.ask("sizes", list(left))
            left = {
                key: left[key] for key, got in zip(left, sizes, strict=True) if got != left[key]
            }


async def test_what_comes_in_the_last_moment_and_while_it_goes_is_not_lost(
    real: Cluster, tmp_path: Path, stranger: Stranger, when_open: Callable[..., None]
) -> None:
    member = await put_by_an_earlier_client(real, tmp_path)
    keys: list[str] = []

    async def puts(lot: str) -> None:
        keys.append("kv/last")
        assert await stranger.ask("put", "kv/last", 1000, lot, False) == 0

    when_open(puts, after=True)
    async with memory(real, tmp_path) as tier:
        gone = anyio.Event()

        async def traffic() -> None:
            while not gone.is_set():
                keys.append(f"kv/{len(keys)}")
                assert await stranger.ask("put", keys[-1], 1000, "", False) == 0
                await anyio.sleep(0.005)

        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(traffic)
                assert kinds(await tier.drop([await drop_item(tier, member)], fence())) == ["Done"]
                gone.set()
        await expect_all(stranger, dict.fromkeys(keys, 1000))


async def test_a_process_that_ends_while_its_lot_is_open_takes_nothing_with_it(
    real: Cluster, tmp_path: Path, stranger: Stranger, when_open: Callable[..., None]
) -> None:
    member = await put_by_an_earlier_client(real, tmp_path)
    opened = anyio.Event()

    async def puts(lot: str) -> None:
        assert await stranger.ask("put", "kv", 8 * MIB, lot, False) == 0
        opened.set()

    when_open(puts)
    with anyio.fail_after(WAIT_S):
        async with memory(real, tmp_path) as tier, anyio.create_task_group() as tasks:
            tasks.start_soon(tier.drop, [await drop_item(tier, member)], fence())
            await opened.wait()
            tasks.cancel_scope.cancel()
    await expect_all(stranger, {"kv": 8 * MIB, "w/0": OURS})
    assert set(await to_thread.run_sync(segments, real)) == {real.hosts[0].name}


async def test_a_member_whose_disk_dies_while_it_is_parked_stays_until_a_host_has_room(
    real: Cluster, tmp_path: Path, when_open: Callable[..., None]
) -> None:
    member = await put_by_an_earlier_client(real, tmp_path)

    async def kills(_: str) -> None:
        await to_thread.run_sync(real.hosts[0].kill)

    when_open(kills, after=True)
    async with memory(real, tmp_path) as tier:
        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(tier.drop, [await drop_item(tier, member)], fence())
                lot = await waits_for(tier, "no cold copy")
                tasks.cancel_scope.cancel()
            assert (await to_thread.run_sync(real.entry, "w/0"))["values"]
            await to_thread.run_sync(lambda: real.add_host(64))
            await lot.ended.wait()

        def has_moved() -> bool:
            new = segments(real)[real.hosts[1].name]
            return {one["transport_endpoint_"] for one in real.entry("w/0")["values"]} == {new}

        await to_thread.run_sync(until, "it lies on the new host", has_moved)
