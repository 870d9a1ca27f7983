"""Inputs that break parsers of any kind, tried at every target and kept out of the corpus."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

DEEP = 20_000
PLACES_MAX = 4
_MARK = "here it goes down"


def hostile() -> Iterator[bytes]:
    """Nested too deeply, numbers too long, text that is none, and nothing at all."""
    yield from (b"", b" ", b"\0", b"\n", b"\xff", b"\xef\xbb\xbf{}", b"\xed\xa0\x80", b"null")
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}"), (b"a.", b"=1"), (b"(", b")")):
        for depth in (200, 900, 960, 980, 990, 1000, DEEP):
            yield opening * depth
            yield opening * depth + b"1" + closing * depth
    for digits in (20, 400, 4300, 4301, 50_000):
        yield b"9" * digits
        yield b"[" + b"9" * digits + b"]"
        yield b'{"a":-' + b"9" * digits + b"}"
    yield from (b"[1e400]", b"[-1e400]", b"[NaN]", b"[Infinity]", b'{"a":1,"a":2}', b'"\\ud800"')
    yield b"a" * 100_000
    yield b"\0" * 100_000


def nested(seeds: Sequence[bytes]) -> Iterator[bytes]:
    """JSON seeds with one place of them nested so that reading it just succeeds, or just fails.

    What looks at the value then may stand deeper in the stack than the reader did.
    """
    for seed in seeds:
        try:
            document = json.loads(seed)
        except ValueError:
            continue
        for marked in _marked(document):
            mark = json.dumps(_MARK).encode()
            for depth in range(850, 1000):
                yield marked.replace(mark, b"[" * depth + b"]" * depth)


def _marked(document: Any) -> Iterator[bytes]:
    """The document with one value after another replaced by the mark."""
    places = list(_places(document))
    for parent, key in places[:: max(1, len(places) // PLACES_MAX)]:
        kept, parent[key] = parent[key], _MARK
        yield json.dumps(document).encode()
        parent[key] = kept


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])
