"""What a source would become as a revision, before anything is recorded.  Layer: weightstore.

Shared by the import and by its preview, so that both refuse the same at the same place: what no
tier takes, a source that is not whole, an identity or a manifest that cannot be, keys that no tier
can hold; and a revision of that name with other content.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anyio import to_thread

from weightctl.controller.core.identity import manifest_key, payload_group_id
from weightctl.controller.core.manifest import canonical_bytes
from weightctl.controller.core.observation import Members
from weightctl.controller.core.records import DataType
from weightctl.controller.errors import ErrorCode, WeightError
from weightctl.controller.weightstore.candidate import UNKNOWN_DIGEST
from weightctl.controller.weightstore.layout import plan_layout
from weightctl.controller.weightstore.placement import check, check_fit
from weightctl.controller.weightstore.primitives import as_members
from weightctl.controller.weightstore.upload import checked_draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.manifest import StoredWeightManifest
    from weightctl.controller.core.records import RevisionMetadata
    from weightctl.controller.ports import Tier
    from weightctl.controller.weightstore.layout import ImportLayout
    from weightctl.controller.weightstore.options import WeightStoreOptions
    from weightctl.controller.weightstore.source import ModelSource
    from weightctl.controller.weightstore.upload import Upload


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The objects of an import; its time and the digests are still to come."""

    layout: ImportLayout
    manifest: StoredWeightManifest
    members: Members
    """In key order, with UNKNOWN_DIGEST; the manifest has the size that it will have."""
    manifest_bytes: int

    def hashed(self, digests: Sequence[bytes]) -> Members:
        """The members with the digests of the payloads; the manifest's time is still to come."""
        known = dict(zip((one.key for one in self.layout.payloads), digests, strict=True))
        return replace(
            self.members,
            sha256=b"".join(known.get(key, UNKNOWN_DIGEST) for key in self.members.keys),
        )


async def draft(
    identity: Identity,
    source: ModelSource,
    tiers: Sequence[Tier],
    names: Sequence[str] | None,
    options: WeightStoreOptions,
) -> Draft:
    """Cut the source.  Raises ConfigError, SourceError, WeightError and TerminalError."""
    check(tiers, names)
    headers = [file.header for file in source.files]
    layout = await to_thread.run_sync(plan_layout, identity, headers, options.payload_bytes)
    manifest = await to_thread.run_sync(checked_draft, identity, layout, source.path)
    made = await to_thread.run_sync(_draft, identity, layout, manifest)
    check_fit(tiers, names, made.members)
    return made


def _draft(identity: Identity, layout: ImportLayout, manifest: StoredWeightManifest) -> Draft:
    size_bytes = len(canonical_bytes(manifest))
    rows = [(one.key, one.nbytes, DataType.WEIGHT) for one in layout.payloads]
    rows.append((manifest_key(identity), size_bytes, DataType.METADATA))
    rows.sort(key=lambda row: row[0].encode())
    members = Members(
        group_id=payload_group_id(identity),
        keys=[key for key, _, _ in rows],
        sizes_bytes=array("Q", [size for _, size, _ in rows]),
        sha256=UNKNOWN_DIGEST * len(rows),
        data_types=bytes(kind for _, _, kind in rows),
    )
    return Draft(layout=layout, manifest=manifest, members=members, manifest_bytes=size_bytes)


def check_same(record: RevisionMetadata, held: Members, upload: Upload) -> None:
    """A READY revision may be put again only with the content it has.  Raises CONFLICT."""
    wanted = as_members(upload.group_id, upload.members)
    if (
        record.manifest == upload.reference
        and list(held.keys) == list(wanted.keys)
        and held.sha256 == wanted.sha256
    ):
        return
    raise WeightError(
        ErrorCode.CONFLICT,
        f"revision {record.identity} exists with other content",
        "a published revision never changes",
        "import this source under a new revision or weight generation",
    )


def require_text(identity: Identity) -> None:
    """A manifest is UTF-8, so it can only name an identity that is.  Raises INVALID_ARGUMENT."""
    problem = identity.problem()
    if problem is None:
        try:
            for text in (identity.namespace, identity.resource_id, identity.revision):
                text.encode()
        except UnicodeEncodeError:
            problem = "its text is not valid UTF-8, which a manifest cannot hold"
    if problem is not None:
        raise WeightError(
            ErrorCode.INVALID_ARGUMENT,
            f"nothing can be imported as {identity}",
            problem,
            "choose another identity",
        )
