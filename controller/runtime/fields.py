"""The fields of what foreign code hands over, held against the port.  Layer: runtime.

A dataclass checks nothing of what it is made of.  What a field may hold follows from its type and,
for ids and keys, from its name: ids are written into the journal, numbers are reckoned with.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from weightctl.controller.core.identity import encode_text
from weightctl.controller.core.tiers import Capabilities

Fits = Callable[[Any], bool]

ID_CHARS_MAX = 4096
NUMBER_MAX = 2**63 - 1
"""What the journal can hold."""
_DIGEST_BYTES_MAX = 64
_UNWRITABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


def is_id(text: object) -> bool:
    """Text of a bounded length that can be written down: UTF-8, no control characters."""
    if not isinstance(text, str) or len(text) > ID_CHARS_MAX:
        return False
    return text.isprintable() or _UNWRITABLE.search(text) is None


def is_name(text: object) -> bool:
    """A key or a group id: text that stands for bytes, as of a file of a stranger."""
    return isinstance(text, str) and len(text) <= ID_CHARS_MAX and encode_text(text) is not None


def is_count(number: object) -> bool:
    """A true integer that can be stored."""
    return type(number) is int and 0 <= number <= NUMBER_MAX


def is_duration(number: object) -> bool:
    """Seconds: a finite number, not negative."""
    return type(number) in (int, float) and 0 <= number <= NUMBER_MAX  # type: ignore[operator]


def _or_none(fits: Fits) -> Fits:
    return lambda value: value is None or fits(value)


def _is_text(text: object) -> bool:
    return isinstance(text, str)


def _is_digest(value: object) -> bool:
    return isinstance(value, bytes) and len(value) <= _DIGEST_BYTES_MAX


_BY_TYPE: dict[str, tuple[Fits, str]] = {
    "str": (_is_text, "no text"),
    "int": (is_count, "no whole number from 0 to below 2**63"),
    "int | None": (_or_none(is_count), "no whole number from 0 to below 2**63"),
    "float": (is_duration, "no finite number of at least 0"),
    "bool": (lambda value: type(value) is bool, "neither True nor False"),
    "bytes": (_is_digest, "no digest"),
    "bytes | None": (_or_none(_is_digest), "no digest"),
    "Capabilities": (lambda value: isinstance(value, Capabilities), "no Capabilities"),
}
_BY_NAME: dict[str, tuple[Fits, str]] = {
    "instance_id": (is_id, "no text of a bounded length that can be written down"),
    "kind": (is_id, "no text of a bounded length that can be written down"),
    "key": (is_name, "no text that stands for a key"),
    "state": (
        lambda value: value in ("complete", "partial", "quarantined"),
        "none of complete, partial, quarantined",
    ),
}


_rules: dict[type, list[tuple[str, Fits, str]]] = {}
"""By class."""


def flaw_of(value: object) -> str:
    """The first field of a value of the port that is not what it says, and why; empty for none."""
    kind: type[Any] = type(value)
    if kind not in _rules:
        _rules[kind] = _rules_of(kind)
    for name, fits, wanted in _rules[kind]:
        if not fits(found := getattr(value, name)):
            return f"{kind.__name__}.{name} is a {type(found).__name__}, {wanted}"
    return ""


def _rules_of(kind: type[Any]) -> list[tuple[str, Fits, str]]:
    """By field; one of another type is checked by whoever uses it."""
    rules = []
    for field in fields(kind):
        rule = _BY_NAME.get(field.name) or _BY_TYPE.get(str(field.type))
        if rule is not None:
            rules.append((field.name, *rule))
    return rules
