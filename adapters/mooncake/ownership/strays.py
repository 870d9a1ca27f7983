"""Objects with managed names that the book does not have.  Layer: a tier; pure.

They are left when the book is lost, when a host restarts on a folder whose objects were removed, or
when somebody else puts them.  The Master tells no groups, so the group of a stray is that of the
book's objects beside it, else the one that its name has in the default tenant.  Everybody else's
keys, such as those of a cache, are none of ours and are never listed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from weightctl.adapters.mooncake.keys import problem_of
from weightctl.controller.core.identity import Identity, payload_group_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weightctl.adapters.mooncake.ownership.book import Row

MANAGED_PREFIX = "weights/"
_MANAGED = re.compile(
    rf"(?P<stem>{MANAGED_PREFIX}"
    r"(?P<ns>[^/]+)/(?P<res>[^/]+)/(?P<rev>[^/]+)/(?P<gen>[1-9][0-9]{0,19}))"
    r"/(?:manifest|payload/.+)"
)


def strays(keys: Iterable[str], rows: Iterable[Row]) -> Mapping[str, str]:
    """Group id by key, of the keys with a managed name that are in no row."""
    known = {row.key: row.group_id for row in rows}
    groups = {
        found["stem"]: group_id
        for key, group_id in known.items()
        if (found := _MANAGED.fullmatch(key))
    }
    left: dict[str, str] = {}
    for key in keys:
        found = None if key in known else _MANAGED.fullmatch(key)
        if found is not None and not problem_of(key, 1):
            stem = found["stem"]
            if stem not in groups:
                groups[stem] = _derived(found) or stem
            left[key] = groups[stem]
    return left


def _derived(found: re.Match[str]) -> str:
    """The payload group of the names in the default tenant; empty when they are no identity's."""
    texts = [unquote_to_bytes(found[part]).decode("utf-8", "surrogateescape") for part in _PARTS]
    return payload_group_id(
        Identity(
            namespace=texts[0],
            resource_id=texts[1],
            revision=texts[2],
            weight_generation=int(found["gen"]),
        )
    )


_PARTS = ("ns", "res", "rev")
