"""`make torture`: every failpoint of every operation, then rounds by chance.

    python -m tests.faults.processes.torture [--rounds N] [--seed S] [--tiers memory,dfs] [--most K]

Each failure is printed with its point, the seed and the folder that is kept; the last lines say how
many rounds there were and how often each failpoint was hit.  Ends with 1 when anything failed.
"""

import argparse
import secrets
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

from tests.faults.processes.chance import Chance
from tests.faults.processes.rounds import Point, Rounds, enumerated, failing
from tests.faults.processes.sidecar import FOUR, OVER_DFS, OVER_NOF, sidecar

Doing = tuple[str, Callable[[Rounds], object]]
"""What a round is called, and the round."""


class Torture:
    """Runs rounds over one sidecar after the other: a new one after each failure."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.failures: list[str] = []
        self.rounds = 0
        self.hits: Counter[str] = Counter()
        self.missed: list[str] = []

    def over(
        self, tiers: tuple[str, ...], doings: Iterable[Doing], deadline_s: float = 10.0
    ) -> None:
        """All of the rounds, whatever fails."""
        left = iter(doings)
        while self._some(tiers, left, deadline_s):
            pass

    def by_chance(self, count: int) -> None:
        """Rounds by chance over four tiers with short deadlines; each has a seed of its own."""
        made: dict[int, Chance] = {}

        def round_of(seed: int) -> Callable[[Rounds], None]:
            def do(rounds: Rounds) -> None:
                chance = made.get(id(rounds)) or Chance(rounds, seed)
                made.clear()
                made[id(rounds)] = chance
                chance.round()

            return do

        seeds = range(self.seed, self.seed + count)
        doings = ((f"by chance {number}", round_of(seed)) for number, seed in enumerate(seeds, 1))
        self.over(FOUR, doings, deadline_s=1.0)

    def points(self, tiers: tuple[str, ...], most: int) -> list[Point]:
        """All kills, then all errors once."""
        with (
            tempfile.TemporaryDirectory(prefix="weightctl-torture-") as folder,
            sidecar(Path(folder), tiers) as one,
        ):
            one.start()
            rounds = Rounds(one)
            return enumerated(rounds, most=most) + enumerated(rounds, most=1, act=failing)

    def _some(self, tiers: tuple[str, ...], left: Iterable[Doing], deadline_s: float) -> bool:
        """Rounds until one fails or none is left; False when none is left."""
        folder = Path(tempfile.mkdtemp(prefix="weightctl-torture-"))
        with ExitStack() as stack:
            one = stack.enter_context(sidecar(folder, tiers, deadline_s=deadline_s))
            one.start()
            rounds = Rounds(one)
            stack.callback(self._count, rounds)
            for name, do in left:
                began = time.monotonic()
                try:
                    do(rounds)
                except Exception:  # noqa: BLE001 - told, and the rest goes on
                    self._failed(f"{name} (tiers {','.join(tiers)}, seed {self.seed}): {folder}")
                    return True
                print(f"{time.monotonic() - began:6.2f} s  {name}", flush=True)
        shutil.rmtree(folder)
        return False

    def _failed(self, what: str) -> None:
        self.failures.append(what)
        print(f"FAILED {what}\n{traceback.format_exc()}", flush=True)

    def _count(self, rounds: Rounds) -> None:
        self.rounds += rounds.score.rounds
        self.hits += rounds.score.hits
        self.missed += rounds.score.missed

    def told(self) -> str:
        """The closing lines."""
        lines = [f"{count:6}  {name}" for name, count in sorted(self.hits.items())]
        lines += [f"missed  {name}" for name in self.missed]
        lines += [f"FAILED  {name}" for name in self.failures]
        lines.append(
            f"{self.rounds} rounds, {sum(self.hits.values())} hits at {len(self.hits)} places,"
            f" {len(self.missed)} missed, {len(self.failures)} failed, seed {self.seed}"
        )
        return "\n".join(lines)


def _hit(point: Point) -> Doing:
    return str(point), lambda rounds: rounds.hit(point)


def main() -> int:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="by chance, after the enumeration")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    parser.add_argument("--tiers", default="", help="one list of tiers, such as memory,dfs")
    parser.add_argument("--most", type=int, default=3, help="times that each failpoint is hit")
    given = parser.parse_args()
    lists = [tuple(given.tiers.split(","))] if given.tiers else [FOUR, OVER_DFS, OVER_NOF]
    torture = Torture(given.seed)
    print(f"seed {torture.seed}", flush=True)
    if given.most:
        for tiers in lists:
            torture.over(tiers, map(_hit, torture.points(tiers, given.most)))
    torture.by_chance(given.rounds)
    print(torture.told())
    return 1 if torture.failures else 0


if __name__ == "__main__":
    sys.exit(main())
