"""What became of one simulated script."""

from collections import Counter
from dataclasses import dataclass

from weightctl.adapters.conformance.simulation.script import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What became of one script."""

    oracle: str = ""
    """Name of the broken rule; empty when none broke."""
    detail: str = ""
    fired: Counter[str]
    """Incidents that happened, by call and kind."""
    used: frozenset[Place]
    """Where they happened."""
    actions: Counter[str]
    reached: Counter[str]
    """How often each place was reached."""
    seen: frozenset[tuple[str, ...]]
    """States of records, and reasons of plans."""
    digest: int
    """Of everything that happened, in order."""
    steps: int
    passes: int
    virtual_s: float
    exempt: int = 0
    trace: tuple[str, ...] = ()

    @property
    def incidents(self) -> int:
        return self.fired.total()
