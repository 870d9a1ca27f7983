"""Plain metrics with fixed series.  Layer: telemetry.

A metric declares its labels and all their values; every series exists from the start with zero, and
a value that was not declared counts into `other`.  So the number of series is known beforehand, and
no identity, key or address can become a label.
"""

import itertools
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

OTHER = "other"
SERIES_MAX = 1000

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One series now."""

    name: str
    kind: str
    """`counter`, `gauge` or `histogram`."""
    labels: Mapping[str, str]
    value: float
    """For a histogram the number of observations."""
    total: float = 0.0
    """For a histogram the sum of the observations."""
    buckets: tuple[tuple[float, int], ...] = ()
    """For a histogram (upper bound, observations up to it), cumulative."""


class _Metric:
    """Series by label values."""

    kind = ""

    def __init__(
        self, name: str, help_text: str, unit: str, labels: Mapping[str, Sequence[str]]
    ) -> None:
        self.name = name
        self.help_text = help_text
        self.unit = unit
        self.label_names = tuple(labels)
        self._known = [(*values, OTHER) for values in labels.values()]
        self.series: tuple[Labels, ...] = tuple(itertools.product(*self._known))
        if len(self.series) > SERIES_MAX:
            raise ValueError(f"metric {name} would have {len(self.series)} series")

    def _place(self, values: Sequence[str]) -> Labels:
        return tuple(
            value if value in known else OTHER
            for value, known in zip(values, self._known, strict=True)
        )

    def _labelled(self, labels: Labels) -> dict[str, str]:
        return dict(zip(self.label_names, labels, strict=True))

    def samples(self) -> list[Sample]:
        """Every series, in a fixed order."""
        raise NotImplementedError


class Counter(_Metric):
    """Only grows."""

    kind = "counter"

    def __init__(
        self, name: str, help_text: str, unit: str, labels: Mapping[str, Sequence[str]]
    ) -> None:
        super().__init__(name, help_text, unit, labels)
        self._values = dict.fromkeys(self.series, 0.0)

    def add(self, amount: float, *labels: str) -> None:
        """Count `amount` more."""
        place = labels if labels in self._values else self._place(labels)
        self._values[place] += amount

    def value(self, *labels: str) -> float:
        """The count now."""
        return self._values[self._place(labels)]

    def samples(self) -> list[Sample]:
        """Every series, in a fixed order."""
        return [
            Sample(name=self.name, kind=self.kind, labels=self._labelled(labels), value=value)
            for labels, value in self._values.items()
        ]


class Gauge(Counter):
    """Goes up and down."""

    kind = "gauge"

    def set(self, value: float, *labels: str) -> None:
        """The value now."""
        self._values[self._place(labels)] = value


class Histogram(_Metric):
    """Counts in fixed buckets."""

    kind = "histogram"

    def __init__(self, name: str, help_text: str, unit: str, bounds: Sequence[float]) -> None:
        super().__init__(name, help_text, unit, {})
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def samples(self) -> list[Sample]:
        """The one series."""
        running = list(itertools.accumulate(self._counts))
        bounds = (*self._bounds, float("inf"))
        sample = Sample(
            name=self.name,
            kind=self.kind,
            labels={},
            value=float(running[-1]),
            total=self._total,
            buckets=tuple(zip(bounds, running, strict=True)),
        )
        return [sample]
