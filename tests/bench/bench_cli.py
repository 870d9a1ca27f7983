"""Start-up of the command line beside bare Python, the fastest of several starts of each.

The state directory holds one revision, so that a command that only asks has something to read.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bench.report import row
from weightctl.controller.clock import SystemClock, SystemEntropy
from weightctl.controller.core.identity import parse_identity
from weightctl.controller.store.store import WeightMetadataStore

STARTS = 15
IDENTITY = "prod/model/v1@1"
AIM = "under 150 ms where bare Python takes 15 ms: 10x"
PYTHON = (sys.executable, "-c", "pass")


async def fill(state_dir: Path) -> None:
    """Record one import."""
    async with WeightMetadataStore.open(
        state_dir, clock=SystemClock(), entropy=SystemEntropy()
    ) as store:
        await store.begin_import(
            identity=parse_identity(IDENTITY), expected_payload_count=1, expected_logical_bytes=1
        )


def fastest_ms(commands: Sequence[Sequence[str]]) -> list[float]:
    """The fastest start of each command; they take turns, so that a slow moment hits all."""
    best = [float("inf")] * len(commands)
    for _ in range(STARTS):
        for index, command in enumerate(commands):
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            best[index] = min(best[index], 1000 * (time.perf_counter() - started))
    return best


def main() -> None:
    """Print a row for each kind of command."""
    weightctl = str(Path(sys.executable).with_name("weightctl"))
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(fill(Path(folder)))
        where = ("--state-dir", folder)
        commands = {
            "`weightctl --help`": (weightctl, "--help"),
            "`weightctl list`": (weightctl, "list", *where),
            "`weightctl get`": (weightctl, "get", IDENTITY, *where),
            "`weightctl describe`": (weightctl, "describe", IDENTITY, *where),
        }
        bare, *ours = fastest_ms([PYTHON, *commands.values()])
    peer = f"bare Python {bare:.0f} ms"
    for name, start_ms in zip(commands, ours, strict=True):
        row(name, f"{start_ms:.0f} ms", peer, f"{start_ms / bare:.1f}x", AIM)


if __name__ == "__main__":
    main()
