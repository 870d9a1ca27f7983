"""Options of a tier as plain values, checked.  Layer: adapters, shared; pure.

Invariant: an option that nobody reads is refused with the nearest known name, and a value of the
wrong type or range is refused with the tier's and the option's name.
"""

from __future__ import annotations

import math
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
            raise self._refused(option, f"{value!r} is not a text", 'write it as "..."')
        return value

    def size_bytes(self, option: str) -> int | None:
        """A size as a whole number of bytes or as text such as "20GiB"; None when not given."""
        value = self._options.get(option)
        if value is None:
            return None
        if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
            size = int(float(match[1]) * _UNITS.get((match[2] or "").lower(), 1))
        elif isinstance(value, int) and not isinstance(value, bool):
            size = value
        else:
            size = 0
        if size <= 0:
            raise self._refused(
                option, f"{value!r} is not a size", 'write a number of bytes or text as "20GiB"'
            )
        return size

    def seconds(self, option: str, default: float) -> float:
        """A finite duration above zero, in seconds."""
        value = self._options.get(option, default)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            seconds = float(value)
            if math.isfinite(seconds) and seconds > 0:
                return seconds
        raise self._refused(option, f"{value!r} is no duration", "write seconds above zero")

    def count(self, option: str, default: int) -> int:
        """A whole number of 1 or more."""
        value = self._options.get(option, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self._refused(option, f"{value!r} is no count", "write a whole number above zero")
        return value

    def flag(self, option: str) -> bool:
        """True or false; false when not given."""
        value = self._options.get(option, False)
        if not isinstance(value, bool):
            why = f"{value!r} is neither true nor false"
            raise self._refused(option, why, f"write `{option} = true`, or leave it out")
        return value

    def _refused(self, option: str, why: str, todo: str) -> ConfigError:
        return ConfigError(f"tier {self._name!r}: option {option!r} cannot be used", why, todo)
