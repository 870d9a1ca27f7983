"""Export through OpenTelemetry.  Layer: telemetry; the only module that imports its SDK.

Off unless asked for.  The SDK reads the plain metrics from a thread of its own; leaving waits for
the last flush no longer than a bound, so a collector that hangs cannot hold the shutdown.
"""

import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import anyio
from anyio import to_thread
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from weightctl.controller.telemetry.registry import Sample

FLUSH_S = 3.0
INTERVAL_S = 15.0


@asynccontextmanager
async def exporting(
    read: Callable[[], list[Sample]],
    exporter: MetricExporter,
    *,
    interval_s: float = INTERVAL_S,
    flush_s: float = FLUSH_S,
) -> AsyncIterator[None]:
    """Export what `read` gives, for the length of the block.

    `read` is called from another thread and must only read.
    """
    provider = await to_thread.run_sync(_started, read, exporter, interval_s)
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(_within, flush_s, provider.shutdown)


def _started(
    read: Callable[[], list[Sample]], exporter: MetricExporter, interval_s: float
) -> MeterProvider:
    """The SDK, set up; in a thread, because it takes locks and looks at the machine."""
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=interval_s * 1000)
    resource = Resource.create({"service.name": "weightctl"})
    provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    _register(provider, read)
    return provider


def _register(provider: MeterProvider, read: Callable[[], list[Sample]]) -> None:
    meter = provider.get_meter("weightctl")
    for name, kind in {sample.name: sample.kind for sample in read()}.items():
        callback = _callback(name, read)
        if kind == "gauge":
            meter.create_observable_gauge(name, [callback])
        elif kind == "counter":
            meter.create_observable_counter(name, [callback])
        else:
            meter.create_observable_counter(f"{name}_count", [callback])
            meter.create_observable_counter(f"{name}_sum", [_callback(name, read, total=True)])


def _callback(
    name: str, read: Callable[[], list[Sample]], *, total: bool = False
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        for sample in read():
            if sample.name == name:
                value = sample.total if total else sample.value
                # a bool is an int to Python, and no number to the wire's encoder
                yield Observation(float(value), dict(sample.labels))

    return observe


def _within(seconds: float, call: Callable[[], object]) -> None:
    """Run `call` in a daemon thread and wait for it no longer than `seconds`."""
    thread = threading.Thread(target=call, name="telemetry-flush", daemon=True)
    thread.start()
    thread.join(seconds)
