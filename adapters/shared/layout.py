"""Names of files and folders under a tier's root.  Layer: adapters, shared; pure.

    <root>/weightctl-tier.json                          marker (markers.py)
    <root>/weightctl-fence.json                         highest terms served (fencing.py)
    <root>/groups/<group>/<key>~<sha256>~<instance>     a replica: exactly the member's bytes
    ...the same with `.partial`                         being written, or a killed writer's leftover
    ...the same with `.quarantined`                     kept for people, out of the loop's sight

Group and key are percent-encoded; what would be too long for a file name is named by its digest,
`%%<sha256>`, beside a `%%<sha256>~name` file that holds the text.  A person can read, check
(`sha256sum`) and remove all of it.  Invariant: the instance is part of the name, so removing a name
can never remove a newer replica, and publishing one can never overwrite another.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from weightctl.controller.core.identity import percent_encode

GROUPS = "groups"
PARTIAL = ".partial"
QUARANTINED = ".quarantined"
INSTANCE_BYTES = 8

_NAME_BYTES_MAX = 255
_TAIL_BYTES_MAX = len("~") + 64 + len("~") + 2 * INSTANCE_BYTES + len(QUARANTINED)
_TEXT_BYTES_MAX = _NAME_BYTES_MAX - _TAIL_BYTES_MAX
_HASHED = "%%"  # percent-encoding never gives two percent signs in a row
_EMPTY = "%"  # nor one that stands alone
_TEXT_NAME = re.compile(r"%%[0-9a-f]{64}~name(\.[0-9a-z-]+)?")
_PLAIN = re.compile(r"[A-Za-z0-9\-_~%][A-Za-z0-9\-_.~%]*")
_TAIL = re.compile(r"~[0-9a-f]{64}~[0-9a-f]{16}")
_INSTANCE = re.compile(r"[0-9a-f]{16}")
_TAIL_LENGTH = len("~") + 64 + len("~") + 2 * INSTANCE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredName:
    """A parsed file name of a group's folder; `str()` gives the name."""

    text: str
    """The encoded key: `encode_text(key)`."""
    sha256_hex: str
    instance_id: str
    suffix: str = ""
    """Empty for a complete replica, else PARTIAL or QUARANTINED."""

    def __str__(self) -> str:
        return f"{self.text}~{self.sha256_hex}~{self.instance_id}{self.suffix}"

    def with_suffix(self, suffix: str) -> StoredName:
        """The same instance in another state."""
        return StoredName(
            text=self.text,
            sha256_hex=self.sha256_hex,
            instance_id=self.instance_id,
            suffix=suffix,
        )


def parse_stored(name: str) -> StoredName | None:
    """Read a file name; None for one that is not ours (it is left alone)."""
    parts = text_and_suffix(name)
    if parts is None:
        return None
    text, suffix = parts
    start = len(text)
    return StoredName(
        text=text,
        sha256_hex=name[start + 1 : start + 65],
        instance_id=name[start + 66 : start + _TAIL_LENGTH],
        suffix=suffix,
    )


def text_and_suffix(name: str) -> tuple[str, str] | None:
    """Encoded key and suffix alone: `parse_stored` for the many names of a listing."""
    if not name.isascii():  # no encoding gives such a name
        return None
    suffix = ""
    if name.endswith((PARTIAL, QUARANTINED)):
        suffix = PARTIAL if name.endswith(PARTIAL) else QUARANTINED
    end = len(name) - len(suffix)
    start = end - _TAIL_LENGTH
    if start < 1 or not _TAIL.fullmatch(name, start, end):
        return None
    return name[:start], suffix


def encode_text(text: str) -> str:
    """File name part for a group id or key: injective, never hidden, never `.` or `..`."""
    encoded = text.replace("%", "%25").replace("/", "%2F")
    if not _PLAIN.fullmatch(encoded):
        encoded = percent_encode(text)
        if encoded.startswith("."):
            encoded = "%2E" + encoded[1:]
    if len(encoded) > _TEXT_BYTES_MAX:
        return _HASHED + hashlib.sha256(encoded.encode("ascii")).hexdigest()
    return encoded or _EMPTY


def decode_text(encoded: str) -> str | None:
    """Inverse of `encode_text`; None for a hashed one, whose text lies in `text_file(encoded)`."""
    if is_hashed(encoded):
        return None
    if encoded == _EMPTY:
        return ""
    return unquote_to_bytes(encoded).decode("utf-8", "surrogateescape")


def is_hashed(encoded: str) -> bool:
    """Whether the text was too long for a file name."""
    return encoded.startswith(_HASHED)


def text_file(encoded: str) -> str:
    """Name of the file, beside it, that holds the text of a hashed name."""
    return f"{encoded}~name"


def is_instance(text: str) -> bool:
    """Whether a text can be an instance id; others are never made a part of a path."""
    return _INSTANCE.fullmatch(text) is not None


def is_text_file(name: str) -> bool:
    """Whether a name is one that `text_file` gives, or a draft of that file."""
    return _TEXT_NAME.fullmatch(name) is not None
