"""Planning a million members with four answered tiers, beside the floor of touching their bytes.

The floor is what any planner in this language pays: combining one byte per member and tier and
summing the members' sizes once.  Memory is what planning takes beyond the observation itself.
"""

import tracemalloc
from collections.abc import Callable
from time import perf_counter

from tests.bench.report import row
from tests.support.situations import ROOM, group, situation, view
from weightctl.controller.core.plan import Situation
from weightctl.controller.core.planner import plan
from weightctl.controller.core.records import Operation

MEMBERS = 1_000_000
ROUNDS = 5


def million() -> Situation:
    """An eviction in progress: a part done, a part to drop, to verify and to store."""
    members = group(MEMBERS)
    quarter = MEMBERS // 4
    words = {
        "mem": "-" * quarter + "c" * (3 * quarter),
        "disk": "v" * (2 * quarter) + "c" * quarter + "-" * quarter,
        "dfs": "-" * MEMBERS,
        "nof": "-" * MEMBERS,
    }
    tiers = tuple(view(name, word, free_bytes=ROOM) for name, word in words.items())
    return situation(tiers, operation=Operation.EVICTING, members=members)


def best(call: Callable[[], object]) -> float:
    """Seconds of the fastest of some rounds."""
    times = []
    for _ in range(ROUNDS):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return min(times)


def floor(seen: Situation) -> int:
    """Fold four byte columns and sum the sizes once: no verdict, no steps."""
    folded = 0
    for column in seen.views:
        folded |= int.from_bytes(column.states.translate(bytes(range(256))), "little")
    return folded.to_bytes(MEMBERS, "little").count(1) + sum(seen.members.sizes_bytes)


def main() -> None:
    """Print the two rows."""
    seen = million()
    ours, least = best(lambda: plan(seen)), best(lambda: floor(seen))
    row(
        f"plan {MEMBERS:,} members, 4 tiers",
        f"{ours * 1000:.0f} ms",
        f"fold and sum {least * 1000:.0f} ms",
        f"{ours / least:.1f}x",
        "under 100 ms",
    )
    tracemalloc.start()
    plan(seen)
    peak = tracemalloc.get_traced_memory()[1]
    row("plan: extra memory", f"{peak / 2**20:.0f} MiB", "-", "-", "under 50 MiB")


if __name__ == "__main__":
    main()
