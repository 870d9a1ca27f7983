"""To whom a medium belongs: to one store, until a person gives it to another one.

Layer: adapters, shared.  Invariant: two stores never act on one medium, for each would count
the other's replicas as copies of its own, and remove them.  The holder of a store is its uuid, the
same for all processes and hosts that serve it, and for a restored copy of its state directory.
"""

from __future__ import annotations

import logging

from weightctl.controller.errors import TerminalError

ADOPT = "adopt"
"""The option with which a person takes a medium over."""
_log = logging.getLogger(__name__)


class ForeignMediumError(TerminalError):
    """The medium belongs to another store; nothing was changed."""


def is_foreign(owner: str, holder: str) -> bool:
    """Whether a medium of `owner` is not for `holder`; empty for a medium or caller without."""
    return bool(owner and holder) and owner != holder


def refuse_foreign(
    where: str,
    owner: str,
    holder: str,
    *,
    instead: str = "give this tier another path",
    section: str = "on this tier once",
) -> None:
    """Raise ForeignMediumError for the medium at `where` when it belongs to another store.

    instead: what a person can do without taking it over; section: where `adopt` is set.
    """
    if is_foreign(owner, holder):
        raise ForeignMediumError(
            f"{where} belongs to another store (uuid {owner})",
            "two stores in one place would count and remove each other's copies",
            f"{instead}; if that store is gone for good, set `{ADOPT} = true` {section}",
        )


def tell_adopted(tier: str, owner: str) -> None:
    """Log that a tier's medium was taken over from `owner`; nothing when that is empty."""
    if owner:
        _log.warning(
            "tier %s was taken over from store %s; now leave `%s` out again", tier, owner, ADOPT
        )
