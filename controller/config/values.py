"""Reading one value: from TOML (typed) or from text (environment, flags).  Layer: config.

Each function takes what was written and gives the value, or raises ValueError with the reason in
words.  Sizes are bytes and durations are in the unit of the setting's name; text may carry a unit.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from weightctl.controller.core.policy import Window

if TYPE_CHECKING:
    from collections.abc import Callable

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]i?)?B?", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_WINDOW = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
SIZE_BYTES_MAX = 2**63 - 1
_UNITS_MS = {"ms": 1.0, "s": 1e3, "m": 60e3, "h": 3600e3, "d": 86400e3}
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


def text(value: object) -> str:
    """Any text that is not empty and can name a file."""
    if isinstance(value, str) and value and "\0" not in value:
        return value
    raise ValueError("it must be a text that is not empty")


def optional_text(value: object) -> str:
    """Any text; empty stands for "not set"."""
    if isinstance(value, str):
        return value
    raise ValueError("it must be a text")


def flag(value: object) -> bool:
    """A boolean; as text: true, yes, on, 1 or false, no, off, 0."""
    if isinstance(value, bool):
        return value
    word = value.lower() if isinstance(value, str) else ""
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise ValueError("it must be true or false")


def one_of(*known: str) -> Callable[[object], str]:
    """One of the known words."""

    def parse(value: object) -> str:
        if isinstance(value, str) and value in known:
            return value
        raise ValueError(f"it must be one of {', '.join(known)}")

    return parse


def integer(low: int, high: int) -> Callable[[object], int]:
    """A whole number from `low` to `high`."""

    def parse(value: object) -> int:
        number = value
        if isinstance(value, str) and re.fullmatch(r"-?\d{1,20}", value):
            number = int(value)
        if type(number) is int and low <= number <= high:
            return number
        raise ValueError(f"it must be a whole number from {low} to {high}")

    return parse


def share(value: object) -> float:
    """A part of a whole, 0 to 1."""
    number = _number(value)
    if number is not None and 0 <= number <= 1:
        return float(number)
    raise ValueError("it must be a number from 0 to 1")


def size(low: int) -> Callable[[object], int]:
    """Bytes from `low` on: a whole number, or text such as 512MiB, 4GiB, 1.5TB."""

    def parse(value: object) -> int:
        size_bytes: float = -1
        if type(value) is int:
            size_bytes = value
        elif isinstance(value, str) and (match := _SIZE.fullmatch(value)):
            prefix = (match[2] or "").lower()
            base = 1024 if prefix.endswith("i") else 1000
            size_bytes = float(match[1]) * base ** ("kmgtp".index(prefix[0]) + 1 if prefix else 0)
        if not low <= size_bytes <= SIZE_BYTES_MAX:
            raise ValueError(
                "it must be a size such as 1048576, 512MiB or 4GiB,"
                f" at least {low} and less than 8 EiB"
            )
        return int(size_bytes)

    return parse


def seconds(low: float, high: float) -> Callable[[object], float]:
    """Seconds as a number, or text such as 90s, 15m, 2h."""

    def parse(value: object) -> float:
        return _duration_ms(value, "s", low, high) / 1e3

    return parse


def milliseconds(low: int, high: int) -> Callable[[object], int]:
    """Milliseconds as a number, or text such as 500ms, 90s, 15m."""

    def parse(value: object) -> int:
        return round(_duration_ms(value, "ms", low, high))

    return parse


def names(value: object) -> tuple[str, ...]:
    """A list of different texts; as text: separated by commas."""
    items = value
    if isinstance(value, str):
        items = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(items, list) or not all(isinstance(item, str) and item for item in items):
        raise ValueError("it must be a list of texts")
    if len(set(items)) != len(items):
        raise ValueError("it names something twice")
    return tuple(items)


def windows(value: object) -> tuple[Window, ...]:
    """Daily UTC windows such as "22:00-06:00"."""
    return tuple(map(_window, names(value)))


def shown(value: object) -> object:
    """A value as JSON and TOML show it."""
    if isinstance(value, tuple):
        return [shown(item) for item in value]
    if isinstance(value, Window):
        start, end = divmod(value.start_minute, 60), divmod(value.end_minute, 60)
        return f"{start[0]:02}:{start[1]:02}-{end[0]:02}:{end[1]:02}"
    return value


def _window(word: str) -> Window:
    match = _WINDOW.fullmatch(word)
    if match is None:
        why = "is not a daily UTC window such as 22:00-06:00, from 00:00 to 23:59"
        raise ValueError(f"{word!r} {why}")
    hour, minute, end_hour, end_minute = map(int, match.groups())
    if (hour, minute) == (end_hour, end_minute):
        raise ValueError(f"{word!r} begins when it ends; leave it out for always")
    return Window(start_minute=60 * hour + minute, end_minute=60 * end_hour + end_minute)


def _number(value: object) -> float | None:
    if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?", value):
        return float(value)
    return value if type(value) in (int, float) else None  # type: ignore[return-value]


def _duration_ms(value: object, unit: str, low: float, high: float) -> float:
    match = _DURATION.fullmatch(str(value)) if type(value) in (int, float, str) else None
    if match is None:
        raise ValueError("it must be a duration such as 90s, 15m or 2h")
    duration_ms = float(match[1]) * _UNITS_MS[match[2] or unit]
    if not low * _UNITS_MS[unit] <= duration_ms <= high * _UNITS_MS[unit]:
        raise ValueError(f"it must be from {low:.15g}{unit} to {high:.15g}{unit}")
    return duration_ms
