"""What a plugin answered, taken only where it is what the port says.  Layer: runtime.

An answer of another type is no answer, nor is one with a field that cannot be used; a text of any
kind is made one that can be shown, stored and sent.  Lists may have no end: they are taken in small
parts, so that a deadline reaches them.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, cast, get_args

import anyio

from weightctl.controller.core.observation import ReplicaDetail, TierObservation
from weightctl.controller.core.tiers import TierCapacity
from weightctl.controller.errors import WeightctlError
from weightctl.controller.ports import Check, InventoryItem, MediumReport, Outcome, Unknown
from weightctl.controller.runtime.fields import (
    NUMBER_MAX,
    flaw_of,
    is_count,
    is_duration,
    is_id,
    is_name,
)

TEXT_CHARS_MAX = 1000
CHECKS_MAX = 16
NUMBERS_MAX = 64
"""Of one tier: each is a series of the metrics."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_SLICE = 2048
_OUTCOMES = frozenset(get_args(Outcome))
_OF_ERRORS: dict[str, tuple[Callable[[Any], bool], object]] = {
    "after_s": (is_duration, 0.0),
    "until_ms": (lambda value: value is None or is_count(value), None),
    "needed_bytes": (is_count, 0),
    "free_bytes": (is_count, 0),
}
"""By attribute of an error: what it may be, and what it is taken for if it is something else."""
_LONE = re.compile("[\ud800-\udfff]")


class BadAnswerError(Exception):
    """It is not what the port says."""


def shown(value: object) -> str:
    """A text for people, cut; never raises, whatever `str` does there."""
    try:
        text = value if isinstance(value, str) else f"{type(value).__name__}: {value}"
    except Exception:  # noqa: BLE001 - foreign code
        text = type(value).__name__
    text = text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}…"
    return text.encode(errors="backslashreplace").decode()


def bounded(error: WeightctlError) -> WeightctlError:
    """The same error, with texts and numbers that can be used."""
    error.what, error.why, error.todo = map(shown, (error.what, error.why, error.todo))
    for name, (fits, instead) in _OF_ERRORS.items():
        if hasattr(error, name) and not fits(getattr(error, name)):
            setattr(error, name, instead)
    return error


def seen_in(answer: object) -> TierObservation:
    """The observation.  Raises BadAnswerError."""
    if not isinstance(answer, TierObservation):
        raise BadAnswerError(f"it answered {_kind(answer)}, not a TierObservation")
    states, details = cast("object", answer.states), cast("object", answer.details)
    if not isinstance(states, bytes):
        raise BadAnswerError(f"its states are {_kind(states)}, not bytes")
    if not is_id(answer.epoch):
        raise BadAnswerError("its epoch is no text of a bounded length that can be written down")
    if not isinstance(details, Mapping):
        raise BadAnswerError(f"its details are {_kind(details)}")
    for index, detail in details.items():
        if not (is_count(index) and isinstance(detail, ReplicaDetail)):
            raise BadAnswerError("its details are no ReplicaDetails by index")
        if flaw := flaw_of(detail):
            raise BadAnswerError(flaw)
    return answer if _is_short(answer.problem) else replace(answer, problem=shown(answer.problem))


def capacity_in(answer: object) -> TierCapacity:
    """The capacity.  Raises BadAnswerError."""
    if not isinstance(answer, TierCapacity):
        raise BadAnswerError(f"it answered {_kind(answer)}, not a TierCapacity")
    used, free, total = map(_size_in, (answer.used_bytes, answer.free_bytes, answer.total_bytes))
    return TierCapacity(used_bytes=used, free_bytes=free, total_bytes=total)


def _size_in(number: object) -> int:
    """More than can be stored is as good as what can."""
    if type(number) is not int or number < 0:
        raise BadAnswerError("its numbers are no sizes in bytes")
    return min(number, NUMBER_MAX)


def descriptor_in(answer: object) -> int | None:
    """The descriptor of an open file, or None.  Raises BadAnswerError, OSError."""
    if answer is None:
        return None
    if type(answer) is not int or not stat.S_ISREG(os.fstat(answer).st_mode):
        raise BadAnswerError(f"it answered {_kind(answer)} that is no descriptor of a file")
    return answer


def names_in(answer: object) -> Sequence[str]:
    """The declared names of numbers; none where one of them is no short word."""
    if not isinstance(answer, list | tuple):
        return ()
    names = [one for one in answer[:NUMBERS_MAX] if isinstance(one, str) and _NAME.fullmatch(one)]
    return names if len(names) == len(answer) else ()


def report_in(answer: object, names: Sequence[str]) -> MediumReport:
    """The report, its numbers those that were declared.  Raises BadAnswerError."""
    if not isinstance(answer, MediumReport):
        raise BadAnswerError(f"it answered {_kind(answer)}, not a MediumReport")
    told = cast("object", answer.numbers)
    if not isinstance(told, Mapping):
        raise BadAnswerError(f"its numbers are {_kind(told)}")
    numbers = {name: told[name] for name in names if name in told}
    if not all(type(number) is float or is_count(number) for number in numbers.values()):
        raise BadAnswerError("a number of its report is none")
    return MediumReport(
        state=shown(answer.state), numbers={name: float(told[name]) for name in numbers}
    )


def checks_in(answer: object) -> Sequence[Check]:
    """The first few checks, their texts such as can be shown.  Raises BadAnswerError."""
    if not isinstance(answer, list | tuple) or not all(isinstance(one, Check) for one in answer):
        raise BadAnswerError(f"it answered {_kind(answer)}, not a list of checks")
    return [
        Check(
            name=shown(one.name),
            ok=one.ok is True,
            detail=shown(one.detail),
            todo=shown(one.todo),
        )
        for one in answer[:CHECKS_MAX]
    ]


def outcomes_in(answer: object, asked: int) -> Sequence[Outcome]:
    """The outcomes, at most one more than asked; one of another type is Unknown."""
    if not isinstance(answer, list | tuple):
        raise BadAnswerError(f"it answered {_kind(answer)}, not a list of outcomes")
    return [_outcome_in(one) for one in islice(answer, asked + 1)]


def _outcome_in(one: object) -> Outcome:
    kind = type(one)
    if kind not in _OUTCOMES:
        return Unknown(detail=f"it answered {_kind(one)}, not an outcome")
    if flaw := flaw_of(one):
        return Unknown(detail=flaw)
    detail = getattr(one, "detail", "")
    if not _is_short(detail):
        one = replace(cast("Unknown", one), detail=shown(detail))
    return cast("Outcome", one)


async def listed_in(answer: object) -> Mapping[str, Sequence[InventoryItem]]:
    """The inventory, copied in slices.  Raises BadAnswerError."""
    if not isinstance(answer, Mapping):
        raise BadAnswerError(f"it answered {_kind(answer)}, not a mapping")
    listed: dict[str, list[InventoryItem]] = {}
    taken = 0
    for group_id, items in answer.items():
        if not is_name(group_id):
            raise BadAnswerError(f"it lists a group by {_kind(group_id)} that is no group id")
        group = listed.setdefault(group_id, [])
        for item in items:
            if not isinstance(item, InventoryItem):
                raise BadAnswerError(f"it lists {_kind(item)}, not an InventoryItem")
            if flaw := flaw_of(item):
                raise BadAnswerError(flaw)
            group.append(item)
            taken += 1
            if taken % _SLICE == 0:
                await anyio.lowlevel.checkpoint()
        taken += 1
        if taken % _SLICE == 0:
            await anyio.lowlevel.checkpoint()
    return listed


def _is_short(text: object) -> bool:
    return isinstance(text, str) and len(text) <= TEXT_CHARS_MAX and _LONE.search(text) is None


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"
