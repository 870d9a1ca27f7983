"""How an input is changed by chance: byte by byte, or by the structure that it has.

Everything here is decided by the `Random` that is passed in.
"""

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

BYTES_MAX = 64 * 1024
NUMBERS = (0, 1, -1, 2, 7, 8, 255, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1)
ODD_VALUES: tuple[Any, ...] = (
    *NUMBERS, 2**64, 10**30, 0.5, 1e308, float("inf"), float("nan"), None, True, False, "", "a",
    "\x00", "\x1f", "\ud800", "\udcff", "é", "%2F", "/", "..", "0", "1", [], {}, [[]], {"": 0},
)  # fmt: skip
_DIGITS = re.compile(rb"\d+")


def changed(chance: Random, raw: bytes, form: str, words: Sequence[bytes]) -> bytes:
    """The input with one to eight changes."""
    change = _FORMS[form]
    for _ in range(1 << chance.randrange(4)):
        raw = change(chance, raw, words)
        if chance.random() < 0.5:
            break
    return raw[:BYTES_MAX]


def crossed(chance: Random, one: bytes, other: bytes) -> bytes:
    """The begin of one input and the end of another."""
    return one[: chance.randint(0, len(one))] + other[chance.randint(0, len(other)) :]


# --- bytes ----------------------------------------------------------------------------------------


def _change_bytes(chance: Random, raw: bytes, words: Sequence[bytes]) -> bytes:
    return chance.choice(_BYTE_CHANGES)(chance, raw, words)


def _flip(chance: Random, raw: bytes, words: Sequence[bytes]) -> bytes:
    if not raw:
        return raw
    at = chance.randrange(len(raw))
    return raw[:at] + bytes([raw[at] ^ 1 << chance.randrange(8)]) + raw[at + 1 :]


def _set(chance: Random, raw: bytes, words: Sequence[bytes]) -> bytes:
    at = chance.randint(0, len(raw))
    return raw[:at] + bytes([chance.randrange(256)]) + raw[at + chance.randrange(2) :]


def _cut(chance: Random, raw: bytes, words: Sequence[bytes]) -> bytes:
    start = chance.randint(0, len(raw))
    return raw[:start] + raw[start + _length(chance) :]


def _copy(chance: Random, raw: bytes, words: Sequence[bytes]) -> bytes:
    start, to = chance.randint(0, len(raw)), chance.randint(0, len(raw))
    return raw[:to] + raw[start : start + _length(chance)] + raw[to:]


def _splice(chance: Random, raw: bytes, words: Sequence[bytes]) -> bytes:
    word = chance.choice(words) if words else bytes([chance.randrange(256)])
    at = chance.randint(0, len(raw))
    return raw[:at] + word + raw[at + chance.choice((0, len(word))) :]


def _renumber(chance: Random, raw: bytes, words: Sequence[bytes]) -> bytes:
    found = list(_DIGITS.finditer(raw))
    if not found:
        return _flip(chance, raw, words)
    match = chance.choice(found)
    number = str(chance.choice(NUMBERS)).encode()
    return raw[: match.start()] + number + raw[match.end() :]


def _overwrite(chance: Random, raw: bytes, words: Sequence[bytes]) -> bytes:
    size = chance.choice((1, 2, 4, 8))
    at = chance.randint(0, len(raw))
    number = chance.choice(NUMBERS) % (1 << 8 * size)
    order: Any = chance.choice(("little", "big"))
    return raw[:at] + number.to_bytes(size, order) + raw[at + size :]


def _repeat(chance: Random, raw: bytes, words: Sequence[bytes]) -> bytes:
    start = chance.randint(0, len(raw))
    piece = raw[start : start + _length(chance)]
    return raw[:start] + piece * chance.choice((2, 3, 16, 100)) + raw[start + len(piece) :]


def _length(chance: Random) -> int:
    return chance.randint(1, chance.choice((1, 4, 16, 256)))


_BYTE_CHANGES = (_flip, _set, _cut, _copy, _splice, _renumber, _overwrite, _repeat)


# --- JSON -----------------------------------------------------------------------------------------


def _change_json(chance: Random, raw: bytes, words: Sequence[bytes]) -> bytes:
    if chance.random() < 0.2:
        return _change_bytes(chance, raw, words)
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        return _change_bytes(chance, raw, words)
    return json.dumps(_change_value(chance, document, words), separators=(",", ":")).encode()


def _change_value(chance: Random, document: Any, words: Sequence[bytes]) -> Any:
    """The document with one place of it changed, chosen by walking down at random."""
    places: list[tuple[Any, Any]] = []
    value = document
    while isinstance(value, dict | list) and value:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = chance.choice(keys)
        places.append((value, key))
        value = value[key]
        if chance.random() < 0.25:
            break
    if not places:
        return _odd(chance, value, words)
    parent, key = chance.choice(places[-2:])
    fate = chance.randrange(6)
    if fate == 0:
        del parent[key]
    elif fate == 1 and isinstance(parent, list):
        parent.insert(chance.randint(0, len(parent)), _copied(parent[key]))
    elif fate == 1:
        parent[_text(chance, str(key), words)] = _copied(parent[key])
    elif fate == 2:
        donor, its = chance.choice(places)
        parent[key] = _copied(donor[its])
    else:
        parent[key] = _odd(chance, parent[key], words)
    return document


def _copied(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _odd(chance: Random, value: Any, words: Sequence[bytes]) -> Any:
    if type(value) is int and chance.random() < 0.7:
        return value + chance.choice((1, -1, 2, 8, value, chance.choice(NUMBERS)))
    if isinstance(value, str) and chance.random() < 0.7:
        return _text(chance, value, words)
    if isinstance(value, list) and chance.random() < 0.3:
        return value[::-1]
    return chance.choice(ODD_VALUES)


def _text(chance: Random, value: str, words: Sequence[bytes]) -> str:
    raw = value.encode("utf-8", "surrogatepass")
    return _change_bytes(chance, raw, words).decode("utf-8", "surrogateescape")


# --- lines ----------------------------------------------------------------------------------------


def _change_lines(chance: Random, raw: bytes, words: Sequence[bytes]) -> bytes:
    lines = raw.split(b"\n")
    at = chance.randrange(len(lines))
    fate = chance.randrange(8)
    if fate == 0:
        del lines[at]
    elif fate == 1:
        lines.insert(chance.randint(0, len(lines)), lines[at])
    elif fate == 2:
        to = chance.randrange(len(lines))
        lines[at], lines[to] = lines[to], lines[at]
    elif fate == 3:
        return _change_bytes(chance, raw, words)
    else:
        lines[at] = _change_json(chance, lines[at], words)
    return b"\n".join(lines)


_FORMS: dict[str, Callable[[Random, bytes, Sequence[bytes]], bytes]] = {
    "bytes": _change_bytes,
    "text": _change_bytes,
    "json": _change_json,
    "lines": _change_lines,
}
