"""How much memory this process may still take.  Layer: adapters, shared; blocking.

Asks the machine and every control group that holds the process, its own and those above, because a
container is killed at its own limit however much the machine has.  Invariant: the least of all
answers counts, an eighth of each bound is left to others, and what cannot be read bounds nothing.
`Available` asks a dozen files seldom enough that small replicas do not wait for it.
"""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weightctl.controller.ports import Clock

KEPT_SHARE = 8
ASK_S = 0.02
"""How old an answer may be: what can be written meanwhile is far less than what is kept."""
_NO_LIMIT_BYTES = 2**62
"""Control groups of version 1 say a number near 2**63 where nothing limits them."""
_NO_MEMAVAILABLE = ("MemFree", "Buffers", "Cached")
"""What kernels that do not say MemAvailable could give; shared memory in Cached they could not."""


class _Group(NamedTuple):
    """Files of one kind of control group, relative to where that kind is mounted."""

    mounted: str
    limit: str
    used: str
    reclaimable: str
    """Line of memory.stat: cached pages of files, which count as used and give way."""


_V2 = _Group("", "memory.max", "memory.current", "inactive_file")
_V1 = _Group("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def available_bytes(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> float:
    """Bytes that can be taken now, less what is kept for others; infinite where nothing is known.

    proc, groups: where procfs and the control groups are mounted.
    """
    return max(0.0, min(_of_machine(proc), *_of_groups(proc, groups)))


class Available:
    """`available_bytes`, up to `ASK_S` old.  Not thread-safe: its owner locks."""

    def __init__(self, clock: Clock, ask: Callable[[], float] = available_bytes) -> None:
        self._clock = clock
        self._ask = ask
        self._bytes = 0.0
        self._asked_s = -math.inf

    def __call__(self) -> float:
        """Bytes that can be taken, less what is kept for others."""
        now_s = self._clock.monotonic_s()
        if not 0 <= now_s - self._asked_s < ASK_S:
            self._bytes, self._asked_s = self._ask(), now_s
        return self._bytes


def _of_machine(proc: Path) -> float:
    memory = {name: size * 1024 for name, size in _table(proc / "meminfo").items()}
    available = memory.get("MemAvailable")
    if available is None and "MemFree" in memory:
        available = sum(memory.get(name, 0) for name in _NO_MEMAVAILABLE) - memory.get("Shmem", 0)
    if available is None:
        return math.inf
    return available - memory.get("MemTotal", 0) // KEPT_SHARE


def _of_groups(proc: Path, groups: Path) -> Iterator[float]:
    yield math.inf
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        kind = _V1 if controllers else _V2
        root = groups / kind.mounted
        # In a container the path may be the host's, of which only the last part is mounted.
        own = root.joinpath(*(part for part in path.split("/") if part not in {"", ".."}))
        for folder in (own, *own.parents):
            yield _of_group(folder, kind)
            if folder == root:
                break


def _of_group(folder: Path, kind: _Group) -> float:
    limit = _number(folder / kind.limit)
    if limit is None or limit >= _NO_LIMIT_BYTES:
        return math.inf
    used = _number(folder / kind.used) or 0
    reclaimable = _table(folder / "memory.stat").get(kind.reclaimable, 0)
    return limit - max(0, used - reclaimable) - limit // KEPT_SHARE


def _number(path: Path) -> int | None:
    """The number in a file; None for `max` and where there is no such file."""
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _table(path: Path) -> dict[str, int]:
    """The lines `name number` or `name: number unit` of a file; empty where there is none."""
    table = {}
    for line in _text(path).splitlines():
        words = line.split()
        if len(words) > 1 and words[1].isdecimal():
            table[words[0].rstrip(":")] = int(words[1])
    return table


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""
