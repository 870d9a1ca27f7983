"""Tensors mapped straight from a tier's files.  Layer: weightstore.

A tensor is mapped when one fragment holds it whole and a tier on this host offers the object as a
file.  The mapping holds the file's pages, so dropping the replica later takes nothing away.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weightctl.controller.core.observation import Member
    from weightctl.controller.core.ranges import RangePlan
    from weightctl.controller.ports import Tier

MAPS_MAX = 16_384
"""A process may have 65,530 mappings by default; what is beyond is copied."""


def whole_pieces(plan: RangePlan) -> dict[int, tuple[str, int]]:
    """Targets that lie in one piece: target -> (object key, byte in the object)."""
    counts = Counter(plan.target_indexes)
    return {
        piece.target: (read.object_key, piece.source)
        for read in plan.reads
        for piece in plan.pieces(read)
        if counts[piece.target] == 1
    }


class Mapped(NamedTuple):
    """Objects that were mapped, by key, and keys of those whose bytes are wrong."""

    views: dict[str, memoryview]
    wrong: list[str]


def map_objects(
    members: Sequence[Member],
    tiers: Mapping[str, Tier],
    verify: bool,  # noqa: FBT001 - passed through a thread hop, which takes no keywords
) -> Mapped:
    """Map the members that their tier offers as whole files; blocks, for a worker thread.

    `tiers` names, by key, the mappable tier that holds the member.  Whatever cannot be mapped is
    left out and gets copied instead; with `verify` so is what has the wrong digest.
    """
    mapped = Mapped({}, [])
    for member in members[:MAPS_MAX]:
        path = tiers[member.key].map_path(member)
        view = None if path is None else _map(path, member.size_bytes)
        if view is None:
            continue
        if verify and hashlib.sha256(view).digest() != member.sha256:
            mapped.wrong.append(member.key)
        else:
            mapped.views[member.key] = view
    return mapped


def _map(path: str, size_bytes: int) -> memoryview | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.fstat(descriptor).st_size != size_bytes:
            return None
        return memoryview(mmap.mmap(descriptor, size_bytes, access=mmap.ACCESS_READ))
    except (OSError, ValueError):  # ValueError: it shrank since its size was asked
        return None
    finally:
        os.close(descriptor)
