"""Progress on stderr: one line that redraws on a terminal, rare log lines elsewhere.

Layer: cli.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.controller.cli.units import duration_text, size_text
from weightctl.controller.clock import SystemClock

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self, TextIO

    from weightctl.controller.ports import Clock

_REDRAW_S = 0.1
_LOG_S = 5.0
_CELLS = 24
_ERASE = "\r\x1b[K"


class Progress:
    """Shows how far something is; leave it in every case, so that the line ends.

    What is over sooner than a line is due says nothing.
    """

    def __init__(self, stream: TextIO, *, terminal: bool, clock: Clock | None = None) -> None:
        self._stream = stream
        self._terminal = terminal
        self._clock = clock or SystemClock()
        self._started_s = self._shown_s = self._clock.monotonic_s()
        self._stage = ""
        self._first_bytes = 0
        self._open = False
        self.begun = False
        """Whether anything was told yet."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()

    def clear(self) -> None:
        """Take the line away, so that something else can be written."""
        if self._open:
            self._write(_ERASE)
            self._open = False

    def update(
        self, stage: str, done: int, total: int, *, unit: str = "bytes", waits: str = ""
    ) -> None:
        """`done` of `total` (0: not known) bytes or members of `stage`, and what it waits for."""
        self.begun = True
        now_s = self._clock.monotonic_s()
        if stage != self._stage:
            self._stage, self._first_bytes, self._started_s = stage, done, now_s
        if now_s - self._shown_s < (_REDRAW_S if self._terminal else _LOG_S):
            return
        self._shown_s = now_s
        elapsed_s = now_s - self._started_s
        rate = (done - self._first_bytes) / elapsed_s if elapsed_s > 0 else 0.0
        line = describe(stage, done, total, rate=rate, unit=unit)
        if self._terminal:
            bar = _bar(done, total)
            self._write(f"{_ERASE}{bar}{line}")
            self._open = True
        else:
            self._write(f"{line}, waits: {waits}\n" if waits else f"{line}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def describe(stage: str, done: int, total: int, *, rate: float, unit: str) -> str:
    """One line: how far, how fast (per second), how long still."""
    as_text = size_text if unit == "bytes" else str
    parts = [f"{stage}: {as_text(done)}"]
    if total:
        parts[0] += f" of {as_text(total)} ({100 * done // total}%)"
    if rate > 0:
        parts.append(f"{size_text(int(rate))}/s" if unit == "bytes" else f"{rate:.0f} {unit}/s")
        if total > done:
            parts.append(f"{duration_text((total - done) / rate)} left")
    return ", ".join(parts)


def _bar(done: int, total: int) -> str:
    if not total:
        return ""
    filled = min(_CELLS, _CELLS * done // total)
    return f"[{'#' * filled}{'.' * (_CELLS - filled)}] "
