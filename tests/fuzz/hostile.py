"""Inputs that break parsers of any kind, tried at every target and kept out of the corpus."""

from collections.abc import Iterator

DEEP = 20_000


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
