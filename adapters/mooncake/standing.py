"""How a Mooncake cluster has been doing since this process knows it.  Layer: a tier.

Owns the counts that health and metrics show: who serves, outages by the clock that only goes on,
changes of leader and of epoch, calls by endpoint, error codes by what they mean.  Told by worker
threads and by the loop, so everything is under one lock.  Nothing is ever decided by it.
"""

from __future__ import annotations

import inspect
import threading
from collections import Counter
from typing import TYPE_CHECKING

from weightctl.adapters.mooncake.client.codes import Meaning, meaning_of
from weightctl.adapters.mooncake.client.engine import Engine
from weightctl.adapters.mooncake.master.admin import LEASE_FREE
from weightctl.controller.ports import MediumReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weightctl.adapters.mooncake.client.reads import Reads
    from weightctl.adapters.mooncake.master.admin import Health
    from weightctl.controller.ports import Clock

_CALLS = tuple(name for name, _ in inspect.getmembers(Engine, inspect.isfunction) if name[0] != "_")
NUMBERS = (
    "serving",
    "view_version",
    "leader_changes",
    "epoch_changes",
    "outages",
    "outage_seconds",
    "outage_seconds_total",
    "verified_bytes",
    "verifications_put_off",
    *(f"http{path}" for path in LEASE_FREE),
    *(f"client_{name}" for name in _CALLS),
    *(f"code_{meaning.name.lower()}" for meaning in Meaning),
)
NUMBERS = tuple(name.replace("/", "_") for name in NUMBERS)
"""Names of all numbers of a report."""


class Standing:
    """Who serves and since when nobody does; thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last: Health | None = None
        self._why = "not asked yet"
        self._away_since_s: float | None = clock.monotonic_s()
        self._unlisted = ""
        self._outages = 0
        self._outage_s = 0.0
        self._leaders = 0
        self._epochs = 0
        self._calls: Counter[str] = Counter()
        self._codes: Counter[Meaning] = Counter()

    # --- being told ---

    def serves(self, health: Health) -> None:
        """A Master has just said that it serves."""
        with self._lock:
            if self._last is not None and self._last != health:
                self._leaders += 1
            self._last = health
            if self._away_since_s is not None:
                self._outage_s += self._clock.monotonic_s() - self._away_since_s
                self._away_since_s = None

    def is_away(self, why: str) -> None:
        """No Master serves."""
        with self._lock:
            self._why = why
            if self._away_since_s is None:
                self._away_since_s = self._clock.monotonic_s()
                self._outages += 1

    def lists_owners(self, why_not: str = "") -> None:
        """Whose the cluster is was asked for again, or could not be, and why."""
        with self._lock:
            self._unlisted = why_not

    def begins_epoch(self) -> None:
        """The Master had forgotten what it held; the first epoch of a cluster counts too."""
        with self._lock:
            self._epochs += 1

    def answered(self, name: str, answer: object) -> None:
        """The client library has answered a call."""
        with self._lock:
            self._calls[name] += 1
            self._codes.update(map(meaning_of, _codes(answer)))

    # --- telling ---

    def report(self, asked: Mapping[str, int], reads: Reads) -> MediumReport:
        """All of it; `asked` are the HTTP requests by path."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            outage_s = 0.0 if self._away_since_s is None else now_s - self._away_since_s
            counts = dict.fromkeys(NUMBERS, 0.0) | {
                "serving": int(self._away_since_s is None),
                "view_version": _number(self._last.view) if self._last is not None else 0,
                "leader_changes": self._leaders,
                "epoch_changes": self._epochs,
                "outages": self._outages,
                "outage_seconds": outage_s,
                "outage_seconds_total": self._outage_s + outage_s,
                "verified_bytes": reads.verified_bytes,
                "verifications_put_off": reads.put_off,
                **{f"http{path}".replace("/", "_"): count for path, count in asked.items()},
                **{f"client_{name}": count for name, count in self._calls.items()},
                **{f"code_{meaning.name.lower()}": n for meaning, n in self._codes.items()},
            }
            return MediumReport(state=self._state(outage_s), numbers=counts)

    def _state(self, outage_s: float) -> str:
        last = self._last
        if self._away_since_s is None and last is not None:
            view = f", view {last.view}" if last.view else ""
            unlisted = f"; {self._unlisted}" if self._unlisted else ""
            return f"{last.role} {last.address} serves{view}{unlisted}"
        known = "" if last is None else f"; {last.address} served last"
        return f"no Master has served for {outage_s:.0f} s{known}: {self._why}"


def _codes(answer: object) -> Iterable[int]:
    """The error codes in an answer: itself, or in a list or tuple of answers."""
    if isinstance(answer, list | tuple):
        return [code for one in answer for code in _codes(one)]
    return [answer] if isinstance(answer, int) and answer < 0 else []


def _number(view: str) -> float:
    return float(view) if view.isdecimal() else 0.0
