"""Which keys the release can hold and show.  Layer: a tier; pure.

The Master splits a query at commas after decoding it, so a key with a comma could be written and
never be seen again; a key with a line feed breaks the list of all keys.  A host names a file after
the key with some characters replaced, so a long key is never offloaded, and two keys may share one
file.  Invariant: what could not be observed, or not be kept apart, is refused before it is written.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY_BYTES_MAX = 240
"""255, the longest file name, without what a host puts around the key."""

_PLAIN = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~/,"
_REFUSED = re.compile(r"[\x00-\x1f\x7f,]")
_REPLACED = re.compile(r'[/\\:*?"<>|]')


def problem_of(key: str, size_bytes: int) -> str:
    """Why an object cannot be put; empty when it can."""
    try:
        raw = key.encode()
    except UnicodeEncodeError:
        return "its key is not UTF-8"
    if not key or _REFUSED.search(key):
        return "its key is empty, or has a comma or a control character: it could not be queried"
    if len(raw) > KEY_BYTES_MAX:
        return f"its key has {len(raw)} bytes, the hosts' file names hold {KEY_BYTES_MAX}"
    if size_bytes == 0:
        return "it has no bytes, and Mooncake stores none of that size"
    return ""


def problem_of_file(key: str, size_bytes: int) -> str:
    """Why an object can have no file below `root_fs_dir`; empty when it can."""
    problem = problem_of(key, size_bytes)
    if not problem and file_name(key) in {".", ".."}:
        return "its key is the name of a folder"
    return problem


def never_asked(keys: Sequence[str]) -> list[str]:
    """Keys that cannot be asked for, and so were never put by weightctl: `problem_of` refuses."""
    return [key for key in keys if "," in key]


def query_of(keys: list[str]) -> str:
    """The value of the parameter `keys`, strictly encoded.

    Without those that have a comma: the Master would answer for their parts, others' keys.
    """
    joined = ",".join(keys)
    if joined.count(",") >= len(keys):
        never = frozenset(never_asked(keys))
        return query_of([key for key in keys if key not in never])
    if joined.isascii() and not joined.encode().translate(None, _PLAIN):
        return joined
    return ",".join([quote(key, safe="/") for key in keys])


def file_name(key: str) -> str:
    """The name under which a host's file-per-key backend keeps the object."""
    return _REPLACED.sub("_", key)
