"""The four grades of a tier.  Layer: conformance.

A grade is reached when every case of it and of the lower ones holds; a case names its grade by the
class in which it stands.
"""

from __future__ import annotations

from enum import IntEnum


class Grade(IntEnum):
    """What can be relied on; each one includes those before it."""

    NONE = 0
    BRONZE = 1
    """The contract while nothing goes wrong."""
    SILVER = 2
    """Faults: fences, cancelled and killed writers, hurt media, failing sources."""
    GOLD = 3
    """Looking changes nothing, nothing is left behind, the loop is never held up."""
    PLATINUM = 4
    """Speed, types, and a long run."""
