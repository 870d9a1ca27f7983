"""Made-up revisions: the bytes, members and reference of each.  Layer: conformance.

Everything is derived from the identity, so that two runs speak of the same bytes.
"""

import hashlib
from collections.abc import Mapping

from weightctl.controller.core.identity import (
    Identity,
    manifest_key,
    payload_group_id,
    payload_keys_digest,
    payload_prefix,
)
from weightctl.controller.core.observation import Member
from weightctl.controller.core.records import DataType, ManifestReference


def identity(number: int) -> Identity:
    """One of many revisions."""
    return Identity(
        namespace="prod", resource_id=f"model-{number}", revision="v1", weight_generation=1
    )


def contents(
    of: Identity, payloads: int, size_bytes: int = 64, *, empty: int = 0
) -> dict[str, bytes]:
    """Bytes of each member by key; the manifest is one of them, `empty` payloads have none."""
    filler = {
        f"{payload_prefix(of)}{index:06d}": hashlib.sha256(f"{of}{index}".encode()).digest()
        for index in range(payloads)
    }
    grown = {
        key: (seed * (size_bytes // 32 + 1))[: size_bytes if number >= empty else 0]
        for number, (key, seed) in enumerate(filler.items())
    }
    return grown | {manifest_key(of): f"manifest of {of}".encode()}


def members_of(of: Identity, data: Mapping[str, bytes]) -> list[Member]:
    """Its members by key, the manifest among them."""
    key = manifest_key(of)
    return [
        Member(
            group_id=payload_group_id(of),
            key=name,
            size_bytes=len(content),
            sha256=hashlib.sha256(content).digest(),
            data_type=DataType.METADATA if name == key else DataType.WEIGHT,
        )
        for name, content in sorted(data.items())
    ]


def reference_of(of: Identity, data: Mapping[str, bytes]) -> ManifestReference:
    """What its record says of these members."""
    payloads = [key for key in data if key != manifest_key(of)]
    return ManifestReference(
        manifest_key=manifest_key(of),
        manifest_sha256=hashlib.sha256(data[manifest_key(of)]).hexdigest(),
        payload_group_id=payload_group_id(of),
        payload_keys_sha256=payload_keys_digest(payloads),
        payload_count=len(payloads),
        logical_bytes=sum(len(data[key]) for key in payloads),
    )
