"""What everything about one cluster is built on.  Layer: a tier.

Whoever asks the Master, runs a client or says whose the cluster is gets this, and of the others
only what it uses; `connection` puts them together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weightctl.adapters.mooncake.master.serving import Serving
    from weightctl.adapters.mooncake.options import ConnectionOptions
    from weightctl.adapters.mooncake.ownership.book import Book
    from weightctl.controller.ports import TierContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One cluster, as one store in one state directory uses it."""

    options: ConnectionOptions
    context: TierContext
    serving: Serving
    """The Master over HTTP."""
    book: Book
    """What the Master does not tell."""

    @property
    def name(self) -> str:
        """The cluster, for people."""
        return f"cluster {self.options.cluster}"
