"""The objects of one import: payloads, manifest, reference.  Layer: weightstore (pure).

Everything here follows from the identity, the record's creation time, the layout and the digests,
so a retry of the same source makes equal objects.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from weightctl.controller.core.identity import manifest_key, payload_group_id
from weightctl.controller.core.manifest import canonical_bytes, payload_summary
from weightctl.controller.core.manifest_codec import MANIFEST_BYTES_MAX
from weightctl.controller.core.manifest_rules import validate
from weightctl.controller.core.observation import Member
from weightctl.controller.core.records import DataType, ManifestReference
from weightctl.controller.errors import SourceError
from weightctl.controller.weightstore.layout import build_manifest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.manifest import StoredWeightManifest
    from weightctl.controller.core.records import RevisionMetadata
    from weightctl.controller.weightstore.layout import ImportLayout


class Upload:
    """The objects of one import: members in key order, the manifest among them."""

    def __init__(
        self,
        record: RevisionMetadata,
        layout: ImportLayout,
        digests: Sequence[bytes],
        manifest: StoredWeightManifest,
    ) -> None:
        identity = record.identity
        manifest_bytes = canonical_bytes(manifest)
        self.record = record
        self.layout = layout
        self.manifest_bytes = manifest_bytes
        self.group_id = payload_group_id(identity)
        self.payload_of = {payload.key: payload for payload in layout.payloads}
        self.payload_members = [
            Member(
                group_id=self.group_id,
                key=payload.key,
                size_bytes=payload.nbytes,
                sha256=digest,
                data_type=DataType.WEIGHT,
            )
            for payload, digest in zip(layout.payloads, digests, strict=True)
        ]
        self.manifest = Member(
            group_id=self.group_id,
            key=manifest_key(identity),
            size_bytes=len(manifest_bytes),
            sha256=hashlib.sha256(manifest_bytes).digest(),
            data_type=DataType.METADATA,
        )
        self.reference = reference_of(manifest, self.manifest.sha256)
        self.members = sorted(
            [self.manifest, *self.payload_members], key=lambda member: member.key.encode()
        )


def checked_draft(identity: Identity, layout: ImportLayout, path: str) -> StoredWeightManifest:
    """The manifest but for its time, which has the same length whatever it is."""
    draft = build_manifest(identity, layout, 0)
    validate(draft)
    size = len(canonical_bytes(draft))
    if size > MANIFEST_BYTES_MAX:
        raise SourceError(
            f"model source {path} cannot be imported",
            f"its manifest would have {size} bytes, more than {MANIFEST_BYTES_MAX}",
            "import it in parts, or with larger payload objects",
        )
    return draft


def reference_of(manifest: StoredWeightManifest, sha256: bytes) -> ManifestReference:
    """What a record keeps of a manifest whose canonical bytes have this raw digest."""
    summary = payload_summary(manifest)
    return ManifestReference(
        manifest_key=manifest.manifest_key,
        manifest_sha256=sha256.hex(),
        payload_group_id=manifest.group_id,
        payload_keys_sha256=summary.payload_keys_sha256,
        payload_count=summary.payload_count,
        logical_bytes=summary.logical_bytes,
    )
