"""Losing power at every place of a recorded life, in many ways, and judging what is left.

A life runs once, on a real mount, and its log is kept.  Then each crash point and each choice of
what survives becomes a folder in memory, which the product's own code opens: no mount is needed for
that, so a few hundred images a second are judged.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.disks.survival import PLAIN, Cut, Loss, random_losses
from tests.support.fuse.disk import Change, Kind

Judge = Callable[[Path, Sequence[object]], None]
"""Raises when what lies in that folder is not what the facts promise."""


@dataclass(slots=True)
class Verdicts:
    """How many images were judged, and the first place of each kind of failure."""

    images: int = 0
    cuts: int = 0
    failures: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.images} images at {self.cuts} crash points"

    def check(self) -> None:
        """Raise with everything that was found."""
        assert self.images
        found = "\n".join(f"{where}: {what}" for what, where in self.failures.items())
        assert not found, f"{self}\n{found}"


def cuts(log: Sequence[Change]) -> Iterator[int]:
    """Places where the power may go: before each change, when all that was said was said."""
    for position in range(len(log) + 1):
        if position == len(log) or log[position][0] is not Kind.MARK:
            yield position


def lose_power(
    log: Sequence[Change],
    judge: Judge,
    scratch: Path,
    *,
    random_each: int,
    every: int = 1,
    start: int = 0,
) -> Verdicts:
    """Judge the corners and `random_each` random losses at every `every`-th crash point.

    scratch: an empty folder in memory; start: the first place.  A failure is told with its place
    and loss, by which it repeats.
    """
    verdicts = Verdicts()
    cut = Cut(log)
    for number, position in enumerate(place for place in cuts(log) if place >= start):
        cut.advance(position)
        if number % every:
            continue
        verdicts.cuts += 1
        for loss in (*PLAIN, *random_losses(random_each, seed=1)):
            verdicts.images += 1
            problem = _problem(cut, loss, judge, scratch / "image")
            if problem:
                verdicts.failures.setdefault(problem, f"operation {position}, {loss}")
    return verdicts


def _problem(cut: Cut, loss: Loss, judge: Judge, image: Path) -> str:
    image.mkdir()
    try:
        cut.lay(loss, image)
        judge(image, cut.facts)
    except Exception as error:  # noqa: BLE001 - whatever stops a restart is a failure
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        return f"{type(error).__name__}: {error}".replace("\n", "; ")
    finally:
        shutil.rmtree(image)
    return ""
