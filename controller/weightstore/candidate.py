"""What is to be adopted, as its manifest says it.  Layer: weightstore (pure).

A manifest names the objects and their sizes and holds no digest of their content; who has put them
may know the digests, and gives them beside it.  Invariant: a candidate's manifest is canonical and
belongs to the identity, so its objects have the names that a revision's objects must have.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from weightctl.controller.core.identity import manifest_key, payload_group_id
from weightctl.controller.core.manifest import canonical_bytes, payload_summary
from weightctl.controller.core.manifest_codec import parse_manifest
from weightctl.controller.core.observation import SHA256_BYTES, Members
from weightctl.controller.core.records import DataType
from weightctl.controller.errors import ErrorCode, ManifestError, WeightError
from weightctl.controller.weightstore.upload import reference_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.manifest import StoredWeightManifest
    from weightctl.controller.core.observation import Member
    from weightctl.controller.core.records import ManifestReference

UNKNOWN_DIGEST = bytes(SHA256_BYTES)
"""Stands for a digest that nobody has told; no content has it."""
_SUM_LINE = re.compile(r"(?P<sha256>[0-9a-f]{64}) [ *](?P<key>.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A revision to be; members in key order, payloads with UNKNOWN_DIGEST."""

    identity: Identity
    reference: ManifestReference
    manifest_bytes: bytes
    members: Members
    manifest_index: int
    given: Mapping[str, bytes]
    """Digests of payloads that somebody told, raw, by key."""

    @property
    def manifest_sha256(self) -> bytes:
        """Raw digest of the manifest object."""
        return bytes.fromhex(self.reference.manifest_sha256)

    @property
    def manifest_member(self) -> Member:
        """The manifest object."""
        return replace(self.members.member(self.manifest_index), sha256=self.manifest_sha256)

    def expected(self, index: int) -> bytes | None:
        """The digest that a member must have, where anybody has told it."""
        if index == self.manifest_index:
            return self.manifest_sha256
        return self.given.get(self.members.keys[index])

    def with_digests(self, sha256: Sequence[bytes]) -> Members:
        """The members with the digests that were found, one for each, in their order."""
        members = self.members
        return Members(
            group_id=members.group_id,
            keys=members.keys,
            sizes_bytes=members.sizes_bytes,
            sha256=b"".join(sha256),
            data_types=members.data_types,
        )


def candidate(identity: Identity, raw: bytes, given: Mapping[str, bytes]) -> Candidate:
    """The candidate of a manifest's bytes.

    Raises ManifestError for bytes that are no manifest or not its canonical ones, WeightError
    INVALID_ARGUMENT for a manifest of something else or a digest of an object that it lacks.
    """
    manifest = parse_manifest(raw)
    if canonical_bytes(manifest) != raw:
        raise ManifestError(
            f"the manifest of {identity} cannot be used",
            f"{ManifestError.reason}: its bytes are not its canonical bytes",
            "give the very bytes of the manifest object, as a reader of the store gets them",
        )
    _check_identity(identity, manifest)
    sizes = payload_summary(manifest).object_bytes
    strange = sorted(given.keys() - sizes.keys())
    if strange:
        raise _unfit(
            identity,
            f"a digest is given for {strange[0]!r}, which is no payload of the manifest",
            "leave it out, or give the list that belongs to this manifest",
        )
    sized = {**sizes, manifest.manifest_key: len(raw)}
    keys = sorted(sized, key=str.encode)
    index = keys.index(manifest.manifest_key)
    types = bytearray([DataType.WEIGHT]) * len(keys)
    types[index] = DataType.METADATA
    return Candidate(
        identity=identity,
        reference=reference_of(manifest, hashlib.sha256(raw).digest()),
        manifest_bytes=raw,
        members=Members(
            group_id=manifest.group_id,
            keys=keys,
            sizes_bytes=array("Q", [sized[key] for key in keys]),
            sha256=UNKNOWN_DIGEST * len(keys),
            data_types=bytes(types),
        ),
        manifest_index=index,
        given=given,
    )


def parse_digests(text: str) -> dict[str, bytes]:
    """Raw digests by object key, from lines as `sha256sum` writes them.

    Raises WeightError INVALID_ARGUMENT.
    """
    found: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        match = _SUM_LINE.fullmatch(line)
        if match is None or found.setdefault(
            match["key"], bytes.fromhex(match["sha256"])
        ) != bytes.fromhex(match["sha256"]):
            raise WeightError(
                ErrorCode.INVALID_ARGUMENT,
                f"line {number} of the digests cannot be used",
                "it does not say `SHA256  KEY`, or says another digest for the same key",
                "write one line for each object, as `sha256sum` does, with the key as the name",
            )
    return found


def _check_identity(identity: Identity, manifest: StoredWeightManifest) -> None:
    named = (
        manifest.namespace,
        manifest.resource_id,
        manifest.revision,
        manifest.weight_generation,
    )
    asked = (
        identity.namespace,
        identity.resource_id,
        identity.revision,
        identity.weight_generation,
    )
    if named != asked:
        raise _unfit(
            identity,
            f"its manifest is that of {'/'.join(named[:3])!r} at generation {named[3]}",
            "adopt it as the revision that its manifest names",
        )
    if manifest.manifest_key != manifest_key(identity):
        raise _unfit(
            identity,
            f"the objects have names of their own: the manifest is {manifest.manifest_key!r},"
            f" a managed one is {manifest_key(identity)!r}, and its payloads lie beside it",
            "no store of weightctl renames objects: import the model from its files, or put copies"
            " under the managed names (`weightctl keys` prints them) with a manifest that says"
            " so; removing the old ones stays with their owner",
        )
    if manifest.group_id != payload_group_id(identity):
        raise _unfit(
            identity,
            f"its manifest names the payload group {manifest.group_id!r}, not"
            f" {payload_group_id(identity)!r}",
            "name the tenant that it was written for, as in tenant:namespace/resource/revision@1",
        )


def _unfit(identity: Identity, why: str, todo: str) -> WeightError:
    return WeightError(
        ErrorCode.INVALID_ARGUMENT, f"revision {identity} cannot be adopted", why, todo
    )
