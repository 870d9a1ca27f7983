"""What the keys of claims say.  Layer: a tier; pure.

A claim is `weightctl-owner/STORE`, with `/RANK` or `/RANK/TERM` behind it since there are ranks and
terms; so what an older release has put is one of rank or term 0.  Invariant: whatever only begins
like one is nobody's.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

OWNER_PREFIX = "weightctl-owner/"
_CLAIM = re.compile(OWNER_PREFIX + r"([^,/\x00-\x1f\x7f]+)(?:/(\d{1,18})(?:/(\d{1,19}))?)?")
_TERM_MAX = 2**63 - 1


class Rank(NamedTuple):
    """How one claim stands beside others: the greatest is the owner."""

    number: int
    living: bool
    """Whether it is in memory: not only what a host has brought back from its disk."""


NO_CLAIM = Rank(-1, living=False)


class Named(NamedTuple):
    """What the key of a claim says; of nobody when it is none."""

    store: str
    number: int
    term: int
    """0 for a claim that an older release has put."""


def owner_key(holder: str, number: int = 0, term: int = 0) -> str:
    """The key whose presence says that the store `holder` owns the cluster, with that rank.

    term: that of the process that has put it, where that is known.
    """
    rank = f"/{number}" if number or term else ""
    return f"{OWNER_PREFIX}{holder}{rank}" + (f"/{term}" if term else "")


def named(key: str) -> Named:
    """What a key says; of nobody when it is no claim."""
    match = _CLAIM.fullmatch(key)
    term = 0 if match is None else int(match[3] or 0)
    if match is None or term > _TERM_MAX:
        return Named("", 0, 0)
    return Named(match[1], int(match[2] or 0), term)


def by_owner(found: Mapping[str, Rank]) -> dict[str, Rank]:
    """The highest rank of each store."""
    owners: dict[str, Rank] = {}
    for key, rank in found.items():
        owner = named(key).store
        owners[owner] = max(rank, owners.get(owner, rank))
    return owners
