"""What a run over one target came to."""

import base64
import json
import resource
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.fuzz.target import Fault, Target

MEASURE_EVERY = 2000
"""Memory of one input in so many is measured: it takes as long as ten others."""


@dataclass(slots=True)
class Tally:
    """Counts of one process; memory in bytes, times in seconds."""

    target: str
    inputs: int = 0
    accepted: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    slowest: str = ""
    """The input, base64."""
    peak_bytes: int = 0
    """Most that parsing one of the measured inputs took."""
    peak_share: float = 0.0
    """The most that one took of what its size allows."""
    resident_bytes: int = 0
    """Most that the process ever had."""
    guide: str = "none"
    inputs_kept: int = 0
    coverage: int = 0
    features: int = 0
    fault: str = ""
    _started_s: float = field(default_factory=time.perf_counter)

    def try_one(self, target: Target, raw: bytes) -> bool:
        """Whether the target accepts it.  Raises for a fault."""
        self.inputs += 1
        begun_s = time.perf_counter()
        accepted = target.try_one(raw)
        took_s = time.perf_counter() - begun_s
        self.accepted += accepted
        if took_s > self.slowest_s:
            self.slowest_s, self.slowest = took_s, base64.b64encode(raw).decode()
        if self.inputs % MEASURE_EVERY == 1:
            self.measure(target, raw)
        return accepted

    def measure(self, target: Target, raw: bytes) -> None:
        """Take the memory of one input.  Raises Fault when it is more than its size allows."""
        peak, allowed = target.memory(raw)
        self.peak_bytes = max(self.peak_bytes, peak)
        self.peak_share = max(self.peak_share, peak / allowed)
        if peak > allowed:
            raise Fault(f"{len(raw)} bytes took {peak} bytes of memory, {allowed} are allowed")

    def end(self) -> None:
        """Take the time and the process's memory."""
        self.seconds = time.perf_counter() - self._started_s
        self.resident_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def write(self, path: Path) -> None:
        """Save it for another process."""
        self.end()
        path.write_text(json.dumps(asdict(self)), encoding="ascii")

    def line(self) -> str:
        """One row of the report."""
        cells = (
            f"{self.target:18} {self.inputs:9,} {self.inputs / max(self.seconds, 1e-9):8,.0f}",
            f"{100 * self.accepted / max(self.inputs, 1):5.1f}%",
            f"{self.coverage:6} {self.features:6} {self.inputs_kept:5}",
            f"{self.peak_bytes / 2**20:8.2f} {100 * self.peak_share:4.0f}%",
            f"{self.resident_bytes / 2**20:7.0f}",
            f"{1e3 * self.slowest_s:8.1f} {len(base64.b64decode(self.slowest)):6} ",
            self.fault or "none",
        )
        return " ".join(cells)


HEAD = (
    f"{'target':18} {'inputs':>9} {'per s':>8} {'taken':>6} {'cov':>6} {'feat':>6} {'kept':>5}"
    f" {'peak MiB':>8} {'of':>5} {'RSS MiB':>7} {'slow ms':>8} {'bytes':>6}  fault"
)
