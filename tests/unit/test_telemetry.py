"""Metrics with fixed series, their export, and log lines that cannot be forged."""

import json
import logging
import subprocess
import sys
import threading
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
)

from weightctl.controller.telemetry.export import exporting
from weightctl.controller.telemetry.logs import JsonFormatter, LineFormatter, event
from weightctl.controller.telemetry.metrics import LoopMetrics
from weightctl.controller.telemetry.registry import OTHER, Counter, Histogram


def test_all_series_exist_with_zero_and_an_unknown_label_counts_as_other() -> None:
    counter = Counter("c", "help", "1", {"tier": ("a", "b")})
    assert {(s.labels["tier"], s.value) for s in counter.samples()} == {
        ("a", 0.0),
        ("b", 0.0),
        (OTHER, 0.0),
    }
    counter.add(2, "a")
    counter.add(3, "prod/model/v1@1")
    assert counter.value("a") == 2
    assert counter.value(OTHER) == 3
    assert len(counter.samples()) == 3


def test_a_metric_with_too_many_series_is_refused() -> None:
    with pytest.raises(ValueError, match="series"):
        Counter("c", "help", "1", {"id": [str(number) for number in range(2000)]})


def test_a_histogram_counts_up_to_each_bound() -> None:
    histogram = Histogram("h", "help", "s", (1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(value)
    (sample,) = histogram.samples()
    assert sample.buckets == ((1.0, 2), (2.0, 3), (float("inf"), 4))
    assert (sample.value, sample.total) == (4, 12.0)


def test_the_number_of_series_does_not_depend_on_what_happens() -> None:
    metrics = LoopMetrics(("memory", "disk"))
    before = len(metrics.samples())
    metrics.outcomes.add(1, "Invented")
    metrics.conditions.set(7, "Stuck")
    assert len(metrics.samples()) == before < 100


class Collector(MetricExporter):
    """An exporter that hangs, or keeps what it gets."""

    def __init__(self, *, hangs: bool) -> None:
        super().__init__()
        self.hangs = hangs
        self.release = threading.Event()
        self.got: list[MetricsData] = []

    def export(self, metrics_data: MetricsData, *_: Any, **__: Any) -> MetricExportResult:
        if self.hangs:
            self.release.wait()
        self.got.append(metrics_data)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **_: Any) -> None:
        if self.hangs:
            self.release.wait()


async def test_what_was_counted_is_exported_at_the_end() -> None:
    metrics, collector = LoopMetrics(("memory",)), Collector(hangs=False)
    async with exporting(metrics.samples, collector, interval_s=60):
        metrics.passes.add(5, "finished")
    names = {
        metric.name: metric
        for data in collector.got
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    points = names["weightctl_passes"].data.data_points
    values = {
        (point.attributes or {}).get("result"): getattr(point, "value", None) for point in points
    }
    assert values == {"finished": 5, "again": 0, "failed": 0, OTHER: 0}


async def test_a_collector_that_hangs_does_not_hold_the_shutdown() -> None:
    collector = Collector(hangs=True)
    async with exporting(LoopMetrics(()).samples, collector, interval_s=60, flush_s=0.2):
        pass
    collector.release.set()  # only now: whoever waits for it would not come here


def test_the_sdk_is_not_imported_by_the_loop() -> None:
    code = (
        "import sys, weightctl.controller.runtime.controller;"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("formatter", [LineFormatter(), JsonFormatter()], ids=["line", "json"])
def test_no_value_can_forge_another_line(
    formatter: logging.Formatter, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("weightctl.test")
    caplog.set_level(logging.INFO)
    event(logger, logging.INFO, "a sentence", key='x"\nINFO forged', count=3)
    text = formatter.format(caplog.records[0])
    assert "\n" not in text
    if isinstance(formatter, JsonFormatter):
        assert json.loads(text)["key"] == 'x"\nINFO forged'
    else:
        assert text.startswith("INFO weightctl.test: a sentence key=")
        assert text.endswith(" count=3")
