"""What the arguments of the public store API may be.  Layer: store.

One rule for all methods: an argument that has not its declared type is INVALID_ARGUMENT, before
anything is looked up, hashed or waited for.  Values are the state machine's to judge.
"""

from __future__ import annotations

import functools
import os
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from weightctl.controller.core.group import GroupSnapshot
from weightctl.controller.core.identity import Identity
from weightctl.controller.core.records import (
    Availability,
    DataType,
    ManifestReference,
    Residency,
    Snapshot,
)
from weightctl.controller.core.refusals import invalid

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

P = ParamSpec("P")
R = TypeVar("R")


def _is_identity(value: object) -> bool:
    return isinstance(value, Identity) and value.typed


_FITS: Mapping[str, Callable[[object], bool]] = {
    "Identity": _is_identity,
    "Identity | None": lambda value: value is None or _is_identity(value),
    "str": lambda value: isinstance(value, str),
    "int": lambda value: type(value) is int,
    "bool": lambda value: type(value) is bool,
    "Availability": lambda value: type(value) is Availability,
    "Residency": lambda value: type(value) is Residency,
    "ManifestReference": lambda value: isinstance(value, ManifestReference),
    "GroupSnapshot": lambda value: isinstance(value, GroupSnapshot),
    "GroupSnapshot | None": lambda value: value is None or isinstance(value, GroupSnapshot),
    "Snapshot": lambda value: isinstance(value, Snapshot),
    "str | os.PathLike[str]": lambda value: isinstance(value, str | os.PathLike),
    "Callable[[Identity], None]": callable,
    "bytes": lambda value: type(value) is bytes,
    "DataType": lambda value: type(value) is DataType,
}
"""By annotation, as it is written in the method or the record."""


def typed(method: Callable[P, R]) -> Callable[P, R]:
    """Let a method of the store refuse arguments of other types than its annotations say.

    Raises KeyError at import for an annotation without a rule above.
    """
    code, annotations = method.__code__, dict(method.__annotations__)
    del annotations["return"]
    fits = {name: _FITS[annotation] for name, annotation in annotations.items()}
    positional = code.co_varnames[: code.co_argcount]

    def check(args: tuple[object, ...], named: Mapping[str, object]) -> None:
        for name, value in (*zip(positional, args, strict=False), *named.items()):
            if name in fits and not fits[name](value):
                wanted, given = annotations[name], type(value).__name__
                what = f"argument {name} of {method.__name__}"
                raise invalid(what, f"it must be {wanted} throughout, not {given}: {value!r:.200}")

    if not iscoroutinefunction(method):

        @functools.wraps(method)
        def checked(*args: P.args, **named: P.kwargs) -> R:
            check(args, named)
            return method(*args, **named)

        return checked

    @functools.wraps(method)
    async def awaited(*args: P.args, **named: P.kwargs) -> object:
        check(args, named)
        return await cast("Awaitable[object]", method(*args, **named))

    return cast("Callable[P, R]", awaited)


def mistyped_field(record: object) -> str | None:
    """The first field of a record that has not its declared type, as text for people, or None."""
    for name, wanted in type(record).__annotations__.items():
        value = getattr(record, name)
        if not _FITS[wanted](value):
            return f"its {name} must be {wanted}, not {type(value).__name__}"
    return None
