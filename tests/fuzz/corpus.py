"""The inputs kept in the repository: one file a target, one input a line as JSON text (latin-1).

Kept is the smallest set that goes every way through the product's code that a long run found.
"""

import json
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.fuzz.hostile import hostile
from tests.fuzz.target import Target

FOLDER = Path(__file__).parent / "corpus"
INPUT_BYTES_MAX = 4096
TARGET_BYTES_MAX = 24 * 1024
_PRODUCT = ("/controller/", "/adapters/")

Way = tuple[CodeType, int, int]
"""A step from one line of a function to another."""


def kept(target: Target) -> list[bytes]:
    """What the repository keeps for a target."""
    path = FOLDER / f"{target.name}.jsonl"
    if not path.exists():
        return []
    lines = path.read_text(encoding="ascii").splitlines()
    return [json.loads(line).encode("latin-1") for line in lines]


def known(target: Target) -> list[bytes]:
    """Every input to begin with: the seeds, what is kept, and what breaks parsers of any kind."""
    return [*target.seeds(), *kept(target), *hostile()]


def keep(target: Target, inputs: Iterable[bytes]) -> int:
    """Replace what is kept by the least of `inputs` that goes every way; how many inputs it is."""
    seen: set[Way] = set()
    for raw in target.seeds():
        seen |= ways(target, raw)
    lines: list[str] = []
    size = 0
    for raw in sorted({one for one in inputs if len(one) <= INPUT_BYTES_MAX}, key=_order):
        fresh = ways(target, raw) - seen
        line = json.dumps(raw.decode("latin-1"))
        if fresh and size + len(line) < TARGET_BYTES_MAX:
            seen |= fresh
            lines.append(line)
            size += len(line) + 1
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{target.name}.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
    return len(lines)


def _order(raw: bytes) -> tuple[int, bytes]:
    return len(raw), raw


def ways(target: Target, raw: bytes) -> set[Way]:
    """The steps that the product's code takes for an input."""
    found: set[Way] = set()

    def enter(frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if not any(part in code.co_filename for part in _PRODUCT):
            return None
        last = -1

        def step(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal last
            if event == "line":
                found.add((code, last, frame.f_lineno))
                last = frame.f_lineno
            return step

        return step

    _traced(enter, target, raw)
    return found


def steps(target: Target, raw: bytes) -> int:
    """Lines of Python that parsing the mended input takes: work without a clock."""
    count = 0
    mended = target.mend(raw)

    def step(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        with suppress(*target.refusals):
            target.parse(mended)
    finally:
        sys.settrace(before)
    return count


def _traced(trace: Callable[..., Any], target: Target, raw: bytes) -> None:
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        target.try_one(raw)
    finally:
        sys.settrace(before)
