"""Revision identity and every string derived from it.  Layer: core (pure).

Owns validation, percent-encoding, canonical keys, digests, page tokens, and the command-line form.
All rules speak of UTF-8 bytes, never of characters, and nothing is normalised: two spellings of one
glyph are two identities.  Text may carry arbitrary bytes by `surrogateescape`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from weightctl.controller.errors import ErrorCode, WeightError

if TYPE_CHECKING:
    from collections.abc import Iterable

U64_MAX = 2**64 - 1
COMPONENT_BYTES_MAX = 1024
OBJECT_KEY_BYTES_MAX = 4096
"""An object's key is a key of the op-log; payload keys are longer than their manifest's key."""
DEFAULT_TENANT = "default"
TOKEN_SEPARATOR = "\x1f"

_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_ESCAPED = re.compile(rb"[^A-Za-z0-9\-_.~]")
_PLAIN = re.compile(r"[A-Za-z0-9\-_.~]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_DIGITS = re.compile(r"[0-9]+")
_MANAGED_KEY = re.compile(r"weights/([^/]+)/([^/]+)/([^/]+)/([1-9][0-9]{0,19})/")
_CLI = re.compile(
    r"(?:(?P<tenant>[^:/@]*):)?(?P<ns>[^:/@]*)/(?P<res>[^:/@]*)/(?P<rev>[^:/@]*)@(?P<gen>[0-9]+)"
)


def encode_text(text: object) -> bytes | None:
    """UTF-8 bytes of `text`, or None for what is no text or text that stands for no byte string.

    One byte string has one text: escapes that spell well-formed UTF-8 stand for nothing, or two
    unequal identities would share one digest.
    """
    if not isinstance(text, str):
        return None
    if text.isascii():
        return text.encode("ascii")
    try:
        raw = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None
    return raw if raw.decode("utf-8", "surrogateescape") == text else None


def is_valid_component(text: object) -> bool:
    """Component rule: text of 1..1024 bytes, none below 0x20, none 0x7F."""
    return _is_plain_text(text, COMPONENT_BYTES_MAX)


def is_valid_object_key(text: object) -> bool:
    """As a component, of 1..4096 bytes."""
    return _is_plain_text(text, OBJECT_KEY_BYTES_MAX)


def _is_plain_text(text: object, bytes_max: int) -> bool:
    if isinstance(text, str) and text.isascii():
        return 1 <= len(text) <= bytes_max and text.isprintable()
    raw = encode_text(text)
    return raw is not None and 1 <= len(raw) <= bytes_max and not _CONTROL.search(raw)


def is_valid_tenant(text: object) -> bool:
    """Tenant rule: text, no leading `_`, no control byte, any length but 0."""
    if isinstance(text, str) and text.isascii():
        return text != "" and text[0] != "_" and text.isprintable()
    raw = encode_text(text)
    return raw is not None and not raw.startswith(b"_") and not _CONTROL.search(raw)


def is_valid_sha256(text: object) -> bool:
    """Exactly 64 lower-case hexadecimal characters."""
    return isinstance(text, str) and _SHA256.fullmatch(text) is not None


def is_u64(value: object) -> bool:
    """A true integer (no bool) that fits an unsigned 64-bit field."""
    return type(value) is int and 0 <= value <= U64_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One immutable revision of a model's weights, named by five fields.

    An instance may be invalid, even of foreign types; `problem()` says why.  Orders by `sort_key`.
    """

    namespace: str
    resource_id: str
    revision: str
    weight_generation: int
    tenant_id: str = DEFAULT_TENANT

    def problem(self) -> str | None:
        """The first broken rule in the contract's order, or None for a valid identity."""
        if not is_valid_tenant(self.tenant_id):
            return "tenant_id must be text, not empty, not start with '_', hold no control byte"
        for name, text in (
            ("namespace", self.namespace),
            ("resource_id", self.resource_id),
            ("revision", self.revision),
        ):
            if not is_valid_component(text):
                return (
                    f"{name} must be text of 1 to {COMPONENT_BYTES_MAX} bytes without control bytes"
                )
        if not is_u64(self.weight_generation) or self.weight_generation == 0:
            return "weight_generation must be an integer from 1 to 2^64-1"
        return None

    @property
    def typed(self) -> bool:
        """Whether each field has its declared type, so that it can be hashed and printed."""
        texts = (self.tenant_id, self.namespace, self.resource_id, self.revision)
        return all(isinstance(text, str) for text in texts) and type(self.weight_generation) is int

    def sort_key(self) -> tuple[bytes, bytes, bytes, bytes, int]:
        """Orders by unsigned bytes, then generation numerically (so 2 comes before 10)."""
        return (
            text_bytes(self.tenant_id),
            text_bytes(self.namespace),
            text_bytes(self.resource_id),
            text_bytes(self.revision),
            self.weight_generation,
        )

    def __str__(self) -> str:
        return format_identity(self) if self.typed else repr(self)


def text_bytes(text: str) -> bytes:
    """UTF-8 bytes of `text` for ordering, hashing and printing; total, also for invalid text."""
    if text.isascii():
        return text.encode("ascii")
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def percent_encode(text: str) -> str:
    """One component of a key: keep `A-Za-z0-9-_.~`, every other byte becomes `%XX`."""
    if _PLAIN.fullmatch(text):
        return text
    return _ESCAPED.sub(lambda match: b"%%%02X" % match.group()[0], text_bytes(text)).decode(
        "ascii"
    )


def manifest_key(identity: Identity) -> str:
    """Canonical manifest object key; does not validate."""
    parts = (identity.namespace, identity.resource_id, identity.revision)
    path = "/".join(percent_encode(part) for part in parts)
    return f"weights/{path}/{identity.weight_generation}/manifest"


def payload_prefix(identity: Identity) -> str:
    """Prefix of every payload object key of the managed manifest variant."""
    return manifest_key(identity).removesuffix("/manifest") + "/payload/"


def identity_of_key(key: str) -> Identity | None:
    """Whose object a managed key names, in the default tenant; None for a key of another form."""
    match = _MANAGED_KEY.match(key)
    if match is None or encode_text(key) is None:
        return None
    namespace, resource_id, revision = (
        unquote_to_bytes(text_bytes(part)).decode("utf-8", "surrogateescape")
        for part in match.group(1, 2, 3)
    )
    found = Identity(
        namespace=namespace,
        resource_id=resource_id,
        revision=revision,
        weight_generation=int(match[4]),
    )
    return found if manifest_key(found).startswith(match[0]) else None


def identity_digest(identity: Identity) -> str:
    """SHA-256 hex over the length-prefixed five fields; empty for an invalid identity."""
    return "" if identity.problem() is not None else _digest(identity)


def _digest(identity: Identity) -> str:
    fields = (
        identity.tenant_id,
        identity.namespace,
        identity.resource_id,
        identity.revision,
        str(identity.weight_generation),
    )
    return hashlib.sha256(_length_prefixed(fields)).hexdigest()


def _length_prefixed(texts: Iterable[str]) -> bytes:
    """For each text: decimal byte length, `:`, the bytes, line feed."""
    return b"".join([b"%d:%s\n" % (len(raw), raw) for raw in map(text_bytes, texts)])


def payload_group_id(identity: Identity) -> str:
    """`weight:` + identity digest, or empty for an invalid identity."""
    return "" if identity.problem() is not None else derived_names(identity)[0]


@lru_cache(maxsize=4096)
def derived_names(identity: Identity) -> tuple[str, str]:
    """(payload group id, manifest key) of a valid identity.

    Remembered, because each mutation compares them at Prepare and again at Publish, and hashing is
    most of what such a check costs.
    """
    return f"weight:{_digest(identity)}", manifest_key(identity)


def revision_record_key(identity: Identity) -> str:
    """`weight-revision:` + identity digest, or empty for an invalid identity."""
    group_id = payload_group_id(identity)
    return f"weight-revision:{group_id.removeprefix('weight:')}" if group_id else ""


def lease_record_key(lease_id: int) -> str:
    """`weight-lease:` + decimal id; empty for id 0."""
    return f"weight-lease:{lease_id}" if lease_id else ""


def payload_keys_digest(keys: Iterable[str]) -> str:
    """SHA-256 hex over the byte-sorted, length-prefixed keys; duplicates count."""
    return hashlib.sha256(_length_prefixed(sorted(keys, key=text_bytes))).hexdigest()


def page_token(identity: Identity) -> str:
    """Token of the last returned row: revision, 0x1F, decimal generation."""
    return f"{identity.revision}{TOKEN_SEPARATOR}{identity.weight_generation}"


def parse_page_token(token: str) -> tuple[str, int] | None:
    """(revision, generation) of a token, or None when malformed."""
    revision, separator, digits = token.rpartition(TOKEN_SEPARATOR)
    if not separator or not revision or not _DIGITS.fullmatch(digits):
        return None
    significant = digits.lstrip("0")
    if not significant or len(significant) > len(str(U64_MAX)):
        return None
    generation = int(significant)
    return (revision, generation) if generation <= U64_MAX else None


def format_identity(identity: Identity) -> str:
    """`[tenant:]namespace/resource/revision@generation`, each text percent-encoded."""
    parts = (identity.namespace, identity.resource_id, identity.revision)
    path = "/".join(percent_encode(part) for part in parts)
    scope = "" if identity.tenant_id == DEFAULT_TENANT else percent_encode(identity.tenant_id) + ":"
    return f"{scope}{path}@{identity.weight_generation}"


def parse_identity(text: str) -> Identity:
    """Inverse of `format_identity`.  Raises INVALID_ARGUMENT with the first broken rule."""
    match = _CLI.fullmatch(text)
    if match is None:
        raise WeightError(
            ErrorCode.INVALID_ARGUMENT,
            f"identity {text!r} cannot be read",
            "it does not have the form [tenant:]namespace/resource/revision@generation",
            "percent-encode '/', ':', '@' and '%' inside a part, for example prod/llama%2F70b/v1@7",
        )
    digits = match["gen"].lstrip("0") or "0"
    identity = Identity(
        tenant_id=DEFAULT_TENANT if match["tenant"] is None else _decode(match["tenant"], text),
        namespace=_decode(match["ns"], text),
        resource_id=_decode(match["res"], text),
        revision=_decode(match["rev"], text),
        weight_generation=int(digits) if len(digits) <= len(str(U64_MAX)) else U64_MAX + 1,
    )
    problem = identity.problem()
    if problem is not None:
        raise WeightError(
            ErrorCode.INVALID_ARGUMENT,
            f"identity {text!r} is invalid",
            problem,
            "correct that part",
        )
    return identity


def _decode(part: str, whole: str) -> str:
    if re.search(r"%(?![0-9A-Fa-f]{2})", part):
        raise WeightError(
            ErrorCode.INVALID_ARGUMENT,
            f"identity {whole!r} cannot be read",
            f"{part!r} holds a '%' that is not followed by two hexadecimal digits",
            "write a literal percent sign as %25",
        )
    return unquote_to_bytes(text_bytes(part)).decode("utf-8", "surrogateescape")
