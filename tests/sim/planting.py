"""Breaks one small rule of the product for the length of a block, by its source text.

A planted fault names a function, a piece of its text and what stands there instead. The function's
code is exchanged in place, so that everyone who holds it runs the broken one, and put back after.
A piece of text that is not there any more is an error: the fault must be planted anew.
"""

import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """One broken rule."""

    at: str
    """`module:function` or `module:Class.method`, below `weightctl.`"""
    old: str
    new: str


class StalePlantError(AssertionError):
    """The text that a planted fault replaces is not in the product (exactly once) any more."""


@contextmanager
def planted(*faults: Planted) -> Iterator[None]:
    """The product with these faults in it."""
    kept: dict[str, tuple[FunctionType, CodeType]] = {}
    sources: dict[str, str] = {}
    try:
        for fault in faults:
            function = _function(fault.at)
            if fault.at not in kept:
                kept[fault.at] = (function, function.__code__)
                sources[fault.at] = textwrap.dedent(inspect.getsource(function))
            if sources[fault.at].count(fault.old) != 1:
                raise StalePlantError(f"{fault.at} does not have {fault.old!r} once")
            sources[fault.at] = sources[fault.at].replace(fault.old, fault.new)
            function.__code__ = _compiled(fault.at, sources[fault.at], function)
        _forget_caches()
        yield
    finally:
        for function, code in kept.values():
            function.__code__ = code
        _forget_caches()


def _function(at: str) -> FunctionType:
    module, _, path = at.partition(":")
    found: Any = importlib.import_module(f"weightctl.{module}")
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
    while not isinstance(found, FunctionType):
        found = getattr(found, "__wrapped__", None) or found.__func__
    function: FunctionType = inspect.unwrap(found)
    return function


def _compiled(at: str, source: str, function: FunctionType) -> CodeType:
    code = compile(f"from __future__ import annotations\n{source}", f"<planted {at}>", "exec")
    return next(
        part
        for part in code.co_consts
        if isinstance(part, CodeType) and part.co_name == function.__name__
    )


def _forget_caches() -> None:
    """Tables that the core has computed from its functions."""
    for name, module in tuple(sys.modules.items()):
        if name.startswith("weightctl.controller.core"):
            for value in tuple(vars(module).values()):
                clear = getattr(value, "cache_clear", None)
                if clear is not None:
                    clear()
