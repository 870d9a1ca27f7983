"""What a plugin answered, taken only where it is what the port says.  Layer: runtime.

An answer of another type is no answer; a text of any length is cut to one that can be shown, stored
and sent.  Lists may have no end: they are taken in small parts, so that a deadline reaches them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import islice
from typing import cast, get_args

import anyio

from weightctl.controller.core.observation import ReplicaDetail, TierObservation
from weightctl.controller.core.tiers import TierCapacity
from weightctl.controller.ports import InventoryItem, MediumReport, Outcome, Unknown

TEXT_CHARS_MAX = 1000
ID_CHARS_MAX = 4096
NUMBERS_MAX = 64
"""Of one tier: each is a series of the metrics."""
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_SLICE = 2048
_OUTCOMES = frozenset(get_args(Outcome))
_TEXTS = {
    kind: tuple(field.name for field in fields(kind) if field.type == "str") for kind in _OUTCOMES
}


class BadAnswerError(Exception):
    """It is not what the port says."""


def shown(value: object) -> str:
    """A text for people, cut; never raises, whatever `str` does there."""
    try:
        text = value if isinstance(value, str) else f"{type(value).__name__}: {value}"
    except Exception:  # noqa: BLE001 - foreign code
        text = type(value).__name__
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}…"


def seen_in(answer: object) -> TierObservation:
    """The observation.  Raises BadAnswerError."""
    if not isinstance(answer, TierObservation):
        raise BadAnswerError(f"it answered {_kind(answer)}, not a TierObservation")
    states, details = cast("object", answer.states), cast("object", answer.details)
    if not isinstance(states, bytes):
        raise BadAnswerError(f"its states are {_kind(states)}, not bytes")
    if not _is_id(answer.epoch):
        raise BadAnswerError("its epoch is no text of a bounded length")
    if not isinstance(details, Mapping):
        raise BadAnswerError(f"its details are {_kind(details)}")
    for detail in details.values():
        if not (isinstance(detail, ReplicaDetail) and _is_id(detail.instance_id)):
            raise BadAnswerError("a detail is no ReplicaDetail with an instance id")
    return answer if _is_short(answer.problem) else replace(answer, problem=shown(answer.problem))


def capacity_in(answer: object) -> TierCapacity:
    """The capacity.  Raises BadAnswerError."""
    if not isinstance(answer, TierCapacity):
        raise BadAnswerError(f"it answered {_kind(answer)}, not a TierCapacity")
    numbers: tuple[object, ...] = (answer.used_bytes, answer.free_bytes, answer.total_bytes)
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        raise BadAnswerError(f"its numbers are {numbers!r:.100}")
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
    if not all(type(number) in (int, float) for number in numbers.values()):
        raise BadAnswerError("a number of its report is none")
    return MediumReport(
        state=shown(answer.state), numbers={name: float(told[name]) for name in numbers}
    )


def outcomes_in(answer: object, asked: int) -> Sequence[Outcome]:
    """The outcomes, at most one more than asked; one of another type is Unknown."""
    if not isinstance(answer, list | tuple):
        raise BadAnswerError(f"it answered {_kind(answer)}, not a list of outcomes")
    return [_outcome_in(one) for one in islice(answer, asked + 1)]


def _outcome_in(one: object) -> Outcome:
    kind = type(one)
    if kind not in _OUTCOMES:
        return Unknown(detail=f"it answered {_kind(one)}, not an outcome")
    outcome = cast("Outcome", one)
    for name in _TEXTS[type(outcome)]:
        text = getattr(outcome, name)
        if not isinstance(text, str) or (name == "instance_id" and not _is_id(text)):
            return Unknown(detail=f"{kind.__name__}.{name} is {_kind(text)}, not a bounded text")
        if len(text) > TEXT_CHARS_MAX and name != "instance_id":
            outcome = cast("Outcome", replace(cast("Unknown", outcome), detail=shown(text)))
    return outcome


async def listed_in(answer: object) -> Mapping[str, Sequence[InventoryItem]]:
    """The inventory, copied in slices.  Raises BadAnswerError."""
    if not isinstance(answer, Mapping):
        raise BadAnswerError(f"it answered {_kind(answer)}, not a mapping")
    listed: dict[str, list[InventoryItem]] = {}
    taken = 0
    for group_id, items in answer.items():
        group = listed.setdefault(group_id, [])
        for item in items:
            if not (isinstance(item, InventoryItem) and _is_id(item.instance_id)):
                raise BadAnswerError(f"it lists {_kind(item)}, not an InventoryItem")
            group.append(item)
            taken += 1
            if taken % _SLICE == 0:
                await anyio.lowlevel.checkpoint()
        taken += 1
        if taken % _SLICE == 0:
            await anyio.lowlevel.checkpoint()
    return listed


def _is_id(text: object) -> bool:
    return isinstance(text, str) and len(text) <= ID_CHARS_MAX


def _is_short(text: object) -> bool:
    return isinstance(text, str) and len(text) <= TEXT_CHARS_MAX


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"
