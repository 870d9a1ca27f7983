"""What a collector gets from a real `weightctl run`, over the real exporter."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from tests.support.cli import IDENTITY, PATIENCE_S, Cli


class Collector:
    """A collector on this machine; keeps the last value of each series."""

    def __init__(self) -> None:
        self.series: dict[tuple[str, bytes], float] = {}
        """By name and labels."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.take(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}/v1/metrics"

    def take(self, body: bytes) -> None:
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in (*metric.gauge.data_points, *metric.sum.data_points):
                        labels = b"".join(one.SerializeToString() for one in point.attributes)
                        self.series[metric.name, labels] = point.as_double

    def total(self, name: str) -> float:
        """Of all its series."""
        return sum(value for (known, _), value in list(self.series.items()) if known == name)


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join(PATIENCE_S)


def test_a_collector_gets_every_kind_of_metric(tmp_path: Path, collector: Collector) -> None:
    cli = Cli(
        tmp_path, extra=f'[telemetry]\notlp_endpoint = "{collector.endpoint}"\ninterval_s = 1'
    )
    cli.ready()
    with cli.running():
        assert cli.json("evict", IDENTITY, "--wait")["residency"] == "COLD"
        cli.wait(lambda: collector.total("weightctl_passes") > 0, cli.log)
        cli.wait(lambda: collector.total("weightctl_ready") == 1.0, cli.log)  # a bool is no number
    assert "encode" not in cli.log()
    assert "Traceback" not in cli.log()
    checks = {check["name"]: check for check in cli.json("doctor")["checks"]}
    assert checks["telemetry"]["detail"] == f"metrics go to {collector.endpoint}"


def test_an_exporter_that_is_not_installed_is_found_by_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = Cli(tmp_path, extra='[telemetry]\notlp_endpoint = "http://127.0.0.1:1/v1/metrics"')
    cli.ready()
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules['opentelemetry.exporter'] = None\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    checks = {check["name"]: check for check in cli.json("doctor", code=1)["checks"]}
    assert not checks["telemetry"]["ok"]
    assert checks["telemetry"]["todo"] == "install weightctl[otel]"
