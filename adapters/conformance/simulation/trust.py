"""Invariant 8 as an oracle: after an epoch or mass change nothing is destroyed before it settled.

Follows, per process, tier and group, what that process was told, and since when. Written from the
design, not from the product's gate.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from weightctl.controller.core.observation import MemberState

_SLACK_S = 0.01


@dataclass(slots=True)
class _Told:
    """What one process has been told about one group by one tier."""

    epoch: str = ""
    epoch_since_s: float = 0.0
    readable: dict[str, bool] = field(default_factory=dict)
    """By key, as trusted."""
    candidate: dict[str, bool] | None = None
    candidate_since_s: float = 0.0


class Trust:
    """What one process may rely on."""

    def __init__(self, settle_s: float, share: float, known: dict[str, str]) -> None:
        """known: by tier, the epoch that was durable when the process started."""
        self._known = dict(known)
        self._settle_s = settle_s
        self._share = share
        self._told: dict[tuple[str, str], _Told] = {}
        self._under_way: Counter[tuple[str, str, str]] = Counter()

    def answered(
        self, tier: str, group_id: str, answer: dict[str, int], epoch: str, now_s: float
    ) -> None:
        """A whole look at a group was answered; states by key."""
        if not epoch:
            return
        told = self._told.setdefault((tier, group_id), _Told())
        if told.epoch != epoch:
            told.epoch, told.epoch_since_s = epoch, now_s
        certain = {
            key: state == MemberState.COMPLETE
            for key, state in answer.items()
            if state in (MemberState.ABSENT, MemberState.COMPLETE)
        }
        if not told.readable:
            told.readable = certain
            return
        changed = [
            key
            for key, value in certain.items()
            if told.readable.get(key, value) != value and not self._under_way[tier, group_id, key]
        ]
        if len(changed) <= self._share * len(answer):
            told.readable.update(certain)
            told.candidate = None
        elif told.candidate != certain:
            told.candidate, told.candidate_since_s = certain, now_s
        elif now_s - told.candidate_since_s >= self._settle_s - _SLACK_S:
            told.readable.update(certain)
            told.candidate = None

    def begins(self, tier: str, group_id: str, keys: Iterable[str], change: int) -> None:
        """Primitives of the process on these keys begin (1) or end (-1)."""
        for key in keys:
            self._under_way[tier, group_id, key] += change

    def made(self, tier: str, group_id: str, key: str, *, readable: bool) -> None:
        """The process's own primitive made it so; seeing it is no surprise."""
        told = self._told.get((tier, group_id))
        if told is not None:
            told.readable[key] = readable
            if told.candidate is not None:
                told.candidate[key] = readable

    def learn(self, durable: dict[str, str]) -> None:
        """The first durable epoch of a tier that was not known before."""
        self._known = durable | self._known

    def problem(self, tier: str, group_id: str, now_s: float) -> str:
        """Why this tier's picture of the group may not be relied on now; empty when it may."""
        told = self._told.get((tier, group_id))
        if told is None:
            return ""
        if told.epoch != self._known.get(tier, told.epoch):
            age_s = now_s - told.epoch_since_s
            if age_s < self._settle_s - _SLACK_S:
                return f"{tier}: epoch {told.epoch!r} is {age_s:.2f} s old"
        if told.candidate is not None:
            age_s = now_s - told.candidate_since_s
            if age_s < self._settle_s - _SLACK_S:
                return f"{tier}: a mass change is {age_s:.2f} s old"
        return ""
