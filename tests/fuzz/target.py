"""One parser that meets foreign bytes, and what must hold for every input it is given.

A target's `parse` either gives a value, raises one of the refusals that it documents, with reasons
for a person, or is at fault. `check` then looks at the value: what was accepted can be written and
read back. `mend` makes lengths and checksums right, so that a change reaches what lies behind them;
one input in eight is tried as it is, too.
"""

import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from weightctl.controller.errors import WeightctlError

REASON_FREE_CHARACTERS = 4096
REASON_CHARACTERS_PER_BYTE = 16
"""A refusal may quote its input a few times, escaped, and never grow beyond that."""


UNMENDED_ONE_IN = 8
"""So many inputs are tried as they are, too; most end at the first checksum."""


class Fault(AssertionError):
    """An input for which a promise of the parser does not hold."""


def unchanged(raw: bytes) -> bytes:
    return raw


def anything(value: Any, raw: bytes) -> None:
    """Accept the value as it is: to have been given one is all that is promised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One row of the table; `form` says how inputs are best changed."""

    name: str
    parse: Callable[[bytes], Any]
    refusals: tuple[type[Exception], ...]
    seeds: Callable[[], Sequence[bytes]]
    check: Callable[[Any, bytes], None] = anything
    mend: Callable[[bytes], bytes] = unchanged
    form: str = "bytes"
    """`bytes`, `text`, `json`, or `lines` (one JSON value each)."""
    words: tuple[bytes, ...] = ()
    """Spliced in by chance: what the parser compares with."""
    shapes: Mapping[str, Callable[[int], bytes]] = field(default_factory=dict)
    """Inputs with `n` parts of the kind that could cost more than its share."""
    floor_bytes: int = 1024 * 1024
    factor_bytes: int = 128
    """Memory that an input may take: the floor, and so much for each of its bytes."""
    bytes_max: int = 2048
    """Of a changed input; what larger ones cost is measured with the shapes."""
    changes: int = 3000
    """Changed inputs in the default test run."""

    def try_one(self, raw: bytes) -> bool:
        """Whether the input is accepted, mended or as it is.  Raises for whatever is a fault."""
        mended = self.mend(raw)
        accepted = self._judge(mended)
        if mended is not raw and crc32(raw) % UNMENDED_ONE_IN == 0:
            accepted = self._judge(raw) or accepted
        return accepted

    def _judge(self, raw: bytes) -> bool:
        try:
            value = self.parse(raw)
        except self.refusals as refusal:
            check_reasons(refusal, raw)
            return False
        self.check(value, raw)
        return True

    def memory(self, raw: bytes) -> tuple[int, int]:
        """Bytes that parsing the mended input took at most, and bytes that it may take."""
        raw = self.mend(raw)
        tracemalloc.start()
        try:
            with suppress(*self.refusals):
                self.parse(raw)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        return peak, self.floor_bytes + self.factor_bytes * len(raw)


def check_reasons(refusal: Exception, raw: bytes) -> None:
    """A person is told what, why and what next, in a text that is no larger than its cause."""
    text = str(refusal)
    if not text:
        raise Fault(f"{type(refusal).__name__} says nothing")
    if len(text) > REASON_FREE_CHARACTERS + REASON_CHARACTERS_PER_BYTE * len(raw):
        raise Fault(f"the refusal has {len(text)} characters, the input {len(raw)} bytes")
    if isinstance(refusal, WeightctlError) and not (refusal.what and refusal.why):
        raise Fault(f"{type(refusal).__name__} says too little: {text!r}")


def same(one: object, other: object, what: str) -> None:
    if one != other:
        raise Fault(f"{what}: {one!r:.300} is not {other!r:.300}")


def text_of(raw: bytes) -> str:
    """The text that bytes stand for: halves of surrogate pairs too, as JSON escapes give them."""
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return raw.decode("utf-8", "surrogateescape")
