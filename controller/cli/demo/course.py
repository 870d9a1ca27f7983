"""How far an operation is, as seen from outside, and where in it to kill.  Layer: cli; pure.

A point is a share of an operation's whole course, from 0 (acknowledged) to 1 (done).  What a plan
still lists is what is left of the course; an import says itself what it has read and written.  The
last part of every course is the finish: records only, nothing that can be counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weightctl.controller.api import documents as doc
    from weightctl.controller.ports import Entropy

FINISH_SHARE = 0.1
"""Of every course; more than it takes, so that some kills hit it."""
BEFORE_BEGIN, COPYING, VERIFYING, FINISHING = "before begin", "copying", "verifying", "finishing"
MISSED = "missed"
DROPPING, SETTING_ASIDE = "dropping", "setting aside"
STAGES = (BEFORE_BEGIN, COPYING, VERIFYING, SETTING_ASIDE, DROPPING, FINISHING, MISSED)
_STAGE_OF = {
    "verify": VERIFYING,
    "store": COPYING,
    "drop": DROPPING,
    "quarantine": SETTING_ASIDE,
}
_IMPORT_PARTS = ((BEFORE_BEGIN, 0.15), (COPYING, 0.5), (VERIFYING, 0.25), (FINISHING, FINISH_SHARE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in its course an operation was: `done` of `total` of the stage's own unit."""

    stage: str
    done: int = 0
    total: int = 0
    unit: str = "members"

    def __str__(self) -> str:
        if not self.total:
            return self.stage
        if self.unit == "bytes":
            return f"{self.stage} {100 * self.done // self.total} %"
        return f"{self.stage} {self.done} of {self.total}"


class Points:
    """Where the kills of each step are to hit.

    Chance picks a point in another one of `rounds` equal parts of the course in each round, so that
    all rounds together cover it.  `fixed` points are taken in turn instead of it.
    """

    def __init__(self, chance: Entropy, rounds: int, fixed: Sequence[float] = ()) -> None:
        self._chance = chance
        self._rounds = rounds
        self._fixed = list(fixed)
        self._parts: dict[str, list[int]] = {}
        self._taken = 0

    def next(self, step: str) -> float:
        """The next point for this step, in [0, 1)."""
        self._taken += 1
        if self._fixed:
            return self._fixed[(self._taken - 1) % len(self._fixed)]
        parts = self._parts.setdefault(step, [])
        if not parts:
            parts.extend(range(self._rounds))
        part = parts.pop(int(self._chance.random() * len(parts)))
        return (part + self._chance.random()) / self._rounds


class Way:
    """The course of an operation that a plan describes: its members, stage by stage."""

    def __init__(self, first: doc.Plan) -> None:
        self._total = left(first)
        self.length = sum(self._total.values())

    def goal(self, point: float) -> tuple[int, float]:
        """Members that must be done, and the share of the next one's time to wait after that.

        In the finish nothing can be counted: all members, and no share.
        """
        at = point * self.length / (1 - FINISH_SHARE)
        if at < self.length:
            return int(at), at % 1
        return self.length, 0.0

    def done(self, plan: doc.Plan) -> int:
        """Members done by now."""
        return self.length - sum(left(plan).values())

    def place(self, seen: doc.Plan, found: doc.Plan) -> Place:
        """Where it was: `seen` just before it was killed, `found` on the media after it.

        What was read back is known to the living only; what was moved or dropped is on the media.
        """
        alive, moves = left(seen), left(found)
        moves.pop("verify", None)
        now = {kind: moves.get(kind, 0) for kind in {**alive, **moves}} | (
            {"verify": alive["verify"]} if "verify" in alive else {}
        )
        for kind, count in now.items():
            if count:
                total = self._total.get(kind, count)
                return Place(stage=_STAGE_OF[kind], done=max(total - count, 0), total=total)
        return Place(stage=FINISHING)


def left(plan: doc.Plan) -> dict[str, int]:
    """Members that a plan still wants handled, by kind of step, in the order of the steps."""
    counts: dict[str, int] = {}
    for step in plan["steps"]:
        if step["members"]:
            counts[step["step"]] = counts.get(step["step"], 0) + step["members"]
    for wait in plan["waits"]:
        if wait["reason"] == "CopyInProgress":
            counts["store"] = counts.get("store", 0) + wait["members"]
    return counts


class Import:
    """The course of an import, by the progress that it reports."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._done: dict[str, int] = {}

    def take(self, frame: Mapping[str, int | str]) -> None:
        """One report of progress."""
        self._done[str(frame["stage"])] = int(frame["done"])

    def reached(self, point: float) -> tuple[bool, float]:
        """Whether the point is due; what cannot be counted is the share still to be waited for."""
        for stage, share in _IMPORT_PARTS:
            if point < share:
                within = point / share
                if stage == BEFORE_BEGIN:
                    return self._sum("hash") >= within * self._size_bytes, 0.0
                if stage == COPYING:
                    return self._sum("store") >= within * 2 * self._size_bytes, 0.0
                if stage == VERIFYING:
                    return self._sum("store") >= 2 * self._size_bytes, within
                return self.verified, within
            point -= share
        return False, 0.0

    @property
    def verified(self) -> bool:
        """Whether all that is to be read back has been."""
        return self._sum("verify") >= self._size_bytes

    def place(self) -> Place:
        """Where it was by the last report, given that it had begun and was not done."""
        copied = self._sum("store")
        if copied < 2 * self._size_bytes:
            return Place(stage=COPYING, done=copied, total=2 * self._size_bytes, unit="bytes")
        if not self.verified:
            return Place(stage=VERIFYING)
        return Place(stage=FINISHING)

    def hashed(self) -> Place:
        """Where it was before there was a record."""
        done = self._sum("hash")
        return Place(stage=BEFORE_BEGIN, done=done, total=self._size_bytes, unit="bytes")

    def _sum(self, stage: str) -> int:
        return sum(done for name, done in self._done.items() if name.split(" ")[0] == stage)


def summary(kills: Sequence[doc.DemoKill]) -> str:
    """How many kills hit each stage, in the stages' order, and between which shares of it."""
    stages = sorted({kill["stage"] for kill in kills}, key=STAGES.index)
    hits = ([kill for kill in kills if kill["stage"] == stage] for stage in stages)
    return ", ".join(_hits(stage, found) for stage, found in zip(stages, hits, strict=True)) or "-"


def _hits(stage: str, kills: Sequence[doc.DemoKill]) -> str:
    shares = sorted(100 * kill["done"] // kill["total"] for kill in kills if kill["total"])
    text = f"{stage} {len(kills)}"
    if not shares:
        return text
    return f"{text} ({'-'.join(map(str, dict.fromkeys((shares[0], shares[-1]))))} %)"
