"""Sizes, times and durations as people read them.  Layer: cli."""

from __future__ import annotations

import time

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_MINUTE_S = 60
_HOUR_S = 3600
_STEP = 1024


def size_text(size_bytes: int) -> str:
    """Three significant digits or all of the whole ones: 90868376 is `86.7 MiB`."""
    value = float(size_bytes)
    for unit in _UNITS:
        if value < _STEP or unit == _UNITS[-1]:
            break
        value /= _STEP
    if unit == "B":
        return f"{size_bytes} B"
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"  # noqa: PLR2004


def duration_text(seconds: float) -> str:
    """`0.42s`, `12s`, `3m05s`, `2h10m`."""
    if seconds < 10:  # noqa: PLR2004 - below, fractions matter to a reader
        return f"{seconds:.2f}s"
    whole = round(seconds)
    if whole < _MINUTE_S:
        return f"{whole}s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S}m{whole % _MINUTE_S:02}s"
    return f"{whole // _HOUR_S}h{whole % _HOUR_S // _MINUTE_S:02}m"


def time_text(wall_ms: int) -> str:
    """UTC, to the second."""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall_ms / 1000))
    except (OverflowError, ValueError, OSError):
        return f"{wall_ms} ms"
