"""The bandwidth of a tier holds for imports and loads as it does for the loop."""

import asyncio
import subprocess
import sys
from pathlib import Path

from anyio import to_thread

from tests.support.cli import PATIENCE_S, Cli
from tests.support.rig import IDENTITY, rig
from tests.support.virtual_time import VirtualClock
from weightctl.controller.runtime.limits import TokenBucket
from weightctl.controller.weightstore.targets import IntoFolder


async def test_an_import_is_charged_for_what_it_writes_and_reads_back(tmp_path: Path) -> None:
    clock = VirtualClock()
    buckets = {name: TokenBucket(clock) for name in ("memory", "disk")}
    async with rig(tmp_path, limits=buckets) as parts:
        await parts.weights.put(IDENTITY, parts.source)
        size_bytes = sum(map(len, parts.hot.content.values()))
        assert buckets["memory"].charged_bytes == size_bytes
        assert buckets["disk"].charged_bytes == 2 * size_bytes, "a cold copy is read back"


async def test_a_load_is_charged_to_the_tier_that_it_reads(tmp_path: Path) -> None:
    clock = VirtualClock()
    buckets = {name: TokenBucket(clock) for name in ("memory", "disk")}
    async with rig(tmp_path, limits=buckets) as parts:
        await parts.weights.put(IDENTITY, parts.source)
        size_bytes = sum(map(len, parts.hot.content.values()))
        before = {name: bucket.charged_bytes for name, bucket in buckets.items()}
        await parts.weights.load(IDENTITY, into=IntoFolder(path=tmp_path / "out"))
        assert buckets["memory"].charged_bytes - before["memory"] == size_bytes
        assert buckets["disk"].charged_bytes == before["disk"]


async def test_a_load_takes_the_time_that_its_bytes_need(tmp_path: Path) -> None:
    clock = VirtualClock()
    bucket = TokenBucket(clock)
    async with rig(tmp_path, limits={"memory": bucket}) as parts:
        await parts.weights.put(IDENTITY, parts.source)
        size_bytes = sum(map(len, parts.hot.content.values()))
        bucket.set_rate(size_bytes / 10)
        loading = asyncio.ensure_future(parts.weights.load(IDENTITY, ["embed", "mask", "scale"]))
        part = sum(len(parts.model[name][2]) for name in ("embed", "mask", "scale"))
        started_s = clock.monotonic_s()
        while not loading.done():
            await clock.advance(0.1)
            await to_thread.run_sync(lambda: None)
        assert (await loading).tensor_count == 3
        assert clock.monotonic_s() - started_s >= 10 * part / size_bytes * 0.9


PROGRAM = """
import sys
from pathlib import Path
from weightctl.controller.cli.calling import run_async
from weightctl.controller.config.loading import load
from weightctl.controller.core.identity import parse_identity
from weightctl.controller.wiring import open_app

async def main():
    config = load(environ={}, file=sys.argv[1])
    async with open_app(config, loop=False) as app:
        assert set(app.weights._limits) == {"local_disk"}
        await app.weights.put(parse_identity("prod/model/v1@1"), sys.argv[2])
        size_bytes = Path(sys.argv[2]).stat().st_size
        assert app.weights._limits["local_disk"].charged_bytes > 2 * size_bytes
    async with open_app(config, loop=True) as app:
        assert app.weights._limits is app.loop().bandwidths
        assert app.loop().bandwidths["local_disk"].rate_bytes_per_s == 1 << 30

run_async(main)
"""


def test_the_configured_bandwidth_reaches_the_weight_store_with_and_without_a_loop(
    tmp_path: Path,
) -> None:
    cli = Cli(tmp_path)
    limit = '[tier.limits]\nbandwidth_bytes_per_s = "1GiB"\n'
    cli.config.write_text(f"{cli.config.read_text()}\n{limit}")
    subprocess.run(
        [sys.executable, "-c", PROGRAM, str(cli.config), str(cli.model)],
        env=cli.environ(),
        timeout=PATIENCE_S,
        check=True,
    )
