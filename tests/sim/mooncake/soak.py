"""Plays many histories: `python -m tests.sim.mooncake.soak FIRST COUNT`; the test plays a few.

Prints each broken rule with its seed, and what has happened; exit code 1 when a rule broke.
"""

import logging
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.sim.mooncake.histories import History, generate
from tests.sim.mooncake.outage import outage

DAY_S = 86_400.0


@dataclass(slots=True)
class Played:
    """What some histories came to."""

    broken: list[str] = field(default_factory=list)
    faced: Counter[str] = field(default_factory=Counter)
    """What has happened in them, by its name."""
    virtual_s: float = 0.0

    def add(self, other: "Played") -> None:
        """What others came to, too."""
        self.broken += other.broken
        self.faced += other.faced
        self.virtual_s += other.virtual_s


def play(histories: Iterable[History], seeds: Iterable[int]) -> Played:
    """Play them all."""
    played = Played()
    for history in (*histories, *map(generate, seeds)):
        world = history.play()
        report = world.report
        played.faced += world.faced
        played.virtual_s += report.virtual_s
        if report.oracle:
            named = f"seed {history.script.seed}, {history.script.actions[0]}"
            played.broken.append(f"{report.oracle}: {report.detail} ({named})")
    return played


def tell(first: int, count: int) -> int:
    """Play some seeds and print what came of it; how many broke a rule."""
    logging.disable(logging.CRITICAL)
    played = play((), range(first, first + count))
    for broken in played.broken:
        print(broken)
    print(f"\n{count} histories beside a Mooncake, {played.virtual_s / 3600:.0f} hours:")
    for name, times in sorted(played.faced.items()):
        print(f"  {times:6} {name}")
    logging.disable(logging.NOTSET)
    return len(played.broken)


def main() -> int:
    """Seeds from FIRST on, and an outage of three days."""
    first, count = map(int, sys.argv[1:])
    broken = tell(first, count)
    diary = outage(DAY_S)
    print(f"three days without a Master: log lines {diary.said}, objects {diary.held}")
    return 1 if broken or diary.broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
