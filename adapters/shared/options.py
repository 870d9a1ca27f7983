"""Options of a tier as plain values, checked.  Layer: adapters, shared; pure.

Invariant: an option that nobody reads is refused with the nearest known name, and a value of the
wrong type or range is refused with the tier's and the option's name.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from weightctl.controller.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]i?)?B?", re.IGNORECASE)
_UNITS = {
    unit + suffix: base**power
    for suffix, base in (("", 1000), ("i", 1024))
    for power, unit in enumerate("kmgtp", 1)
}


SIZE_BYTES_MAX = 2**63 - 1
SECONDS_MAX = 366 * 86_400
COUNT_MAX = 1024
_VALUE_CHARACTERS_MAX = 200


class TierOptions:
    """The options of the tier `name`; only those in `known` may be given.  Raises ConfigError."""

    def __init__(self, name: str, options: Mapping[str, object], known: Sequence[str]) -> None:
        self._name = name
        self._options = options
        for option in options:
            if option not in known:
                near = get_close_matches(option, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
                raise ConfigError(f"tier {name!r}: unknown option {option!r}", "not known", hint)

    def text(self, option: str, default: str | None = None) -> str:
        """A text that is not empty; without `default` it must be given."""
        value = self._options.get(option, default)
        if value is None:
            raise self._refused(option, "it is missing", f"set {option} = ... for this tier")
        if not isinstance(value, str) or not value or "\0" in value:
            raise self._refused(option, f"{_said(value)} is not a text", 'write it as "..."')
        return value

    def size_bytes(self, option: str) -> int | None:
        """A size as a whole number of bytes or as text such as "20GiB"; None when not given."""
        value = self._options.get(option)
        if value is None:
            return None
        size: float = 0
        if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
            size = float(match[1]) * _UNITS.get((match[2] or "").lower(), 1)
        elif isinstance(value, int) and not isinstance(value, bool):
            size = value
        if not 1 <= size <= SIZE_BYTES_MAX:
            why = f"{_said(value)} is not a size"
            raise self._refused(option, why, 'write a number of bytes or text as "20GiB"')
        return int(size)

    def seconds(self, option: str, default: float) -> float:
        """A duration above zero, in seconds, of a year at most."""
        value = self._options.get(option, default)
        known = isinstance(value, (int, float)) and not isinstance(value, bool)
        if known and 0 < value <= SECONDS_MAX:  # type: ignore[operator]
            return float(value)  # type: ignore[arg-type]
        why = f"{_said(value)} is no duration"
        raise self._refused(option, why, "write seconds, above zero and up to a year")

    def count(self, option: str, default: int) -> int:
        """A whole number from 1 to `COUNT_MAX`."""
        value = self._options.get(option, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= COUNT_MAX:
            why = f"{_said(value)} is no count"
            raise self._refused(option, why, f"write a whole number from 1 to {COUNT_MAX}")
        return value

    def flag(self, option: str) -> bool:
        """True or false; false when not given."""
        value = self._options.get(option, False)
        if not isinstance(value, bool):
            why = f"{_said(value)} is neither true nor false"
            raise self._refused(option, why, f"write `{option} = true`, or leave it out")
        return value

    def _refused(self, option: str, why: str, todo: str) -> ConfigError:
        return ConfigError(f"tier {self._name!r}: option {option!r} cannot be used", why, todo)


def _said(value: object) -> str:
    """A refused value for people, who do not want all of a large one."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # too many digits, or nested too deeply
        return "what is there"
    return text if len(text) <= _VALUE_CHARACTERS_MAX else f"{text[:_VALUE_CHARACTERS_MAX]}..."
