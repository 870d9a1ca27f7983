"""How much memory may be taken: the least of what the machine and every control group allow."""

import math
from pathlib import Path

import pytest

from tests.support.virtual_time import VirtualClock
from weightctl.adapters.shared.ram import ASK_S, Available, available_bytes

MIB = 1024 * 1024
MACHINE = "MemTotal: 819200 kB\nMemFree: 1 kB\nMemAvailable: 409600 kB\n"
"""800 MiB, of which 100 are kept and 300 may be taken."""
POD = {"pod/memory.max": f"{160 * MIB}\n", "pod/memory.current": f"{100 * MIB}\n"}
"""160 MiB, of which 20 are kept and 40 may be taken."""


def _available(folder: Path, files: dict[str, str]) -> float:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return available_bytes(folder / "proc", folder / "cgroup")


@pytest.mark.parametrize(
    "meminfo, mib",
    [
        (MACHINE, 300),
        ("MemTotal: 819200 kB\nMemFree: 307200 kB\nCached: 204800 kB\nShmem: 102400 kB\n", 300),
        ("MemTotal: 819200 kB\nMemFree: 1024 kB\n", 0),
        ("MemTotal: 819200 kB\n", math.inf),
        ("", math.inf),
        ("\n:\nMemFree\nMemAvailable: many kB\n", math.inf),
    ],
)
def test_the_machine_bounds_it_whatever_its_kernel_says(
    tmp_path: Path, meminfo: str, mib: float
) -> None:
    assert _available(tmp_path, {"proc/meminfo": meminfo}) == mib * MIB


@pytest.mark.parametrize(
    "cgroup, files, mib",
    [
        ("0::/pod/me", POD, 40),
        ("0::/pod/me", {**POD, "pod/memory.stat": f"anon 5\ninactive_file {30 * MIB}\n"}, 70),
        ("0::/pod/me", {**POD, "pod/me/memory.max": "max", "pod/me/memory.current": "7"}, 40),
        ("0::/pod/me", {**POD, "pod/me/memory.max": "0", "pod/me/memory.current": "7"}, 0),
        ("0::/other", POD, 300),
        ("0::/", {"memory.max": f"{80 * MIB}", "memory.current": f"{30 * MIB}"}, 40),
        # a container that sees the host's path and has its own group mounted as the root
        ("0::/x/docker/y", {"memory.max": f"{80 * MIB}", "memory.current": f"{30 * MIB}"}, 40),
        ("0::/../../pod", POD, 40),
        ("0::/a:b", {"a:b/memory.max": f"{80 * MIB}", "a:b/memory.current": f"{30 * MIB}"}, 40),
        (
            "4:cpu,memory:/me\n0::/",
            {
                "memory/memory.limit_in_bytes": "9223372036854771712",
                "memory/memory.usage_in_bytes": f"{30 * MIB}",
                "memory/me/memory.limit_in_bytes": f"{80 * MIB}",
                "memory/me/memory.usage_in_bytes": f"{50 * MIB}",
                "memory/me/memory.stat": f"total_inactive_file {20 * MIB}\n",
            },
            40,
        ),
    ],
)
def test_every_control_group_bounds_it(
    tmp_path: Path, cgroup: str, files: dict[str, str], mib: int
) -> None:
    machine = {"proc/meminfo": MACHINE, "proc/self/cgroup": cgroup + "\n"}
    groups = {f"cgroup/{name}": text for name, text in files.items()}
    assert _available(tmp_path, machine | groups) == mib * MIB


def test_this_machine_answers() -> None:
    assert 0 <= available_bytes() < math.inf


async def test_an_answer_is_used_for_a_moment_and_then_asked_again() -> None:
    clock, answers = VirtualClock(), iter([300.0, 200.0])
    available = Available(clock, lambda: next(answers))
    assert [available(), available()] == [300, 300]
    await clock.advance(2 * ASK_S)
    assert available() == 200, "older than that"
