"""Small situations for the planner, written as one letter per member and tier.

Letters: `?` unknown, `-` absent, `p` partial, `c` complete, `v` verified, `x` corrupt.  The last
letter of each word is the manifest.
"""

from array import array
from collections.abc import Mapping
from typing import Any

from weightctl.controller.core.aggregate import examine
from weightctl.controller.core.identity import (
    Identity,
    manifest_key,
    payload_group_id,
    payload_keys_digest,
    payload_prefix,
)
from weightctl.controller.core.observation import Members
from weightctl.controller.core.plan import Situation, TierView
from weightctl.controller.core.records import (
    Availability,
    DataType,
    ManifestReference,
    Operation,
    Residency,
    ResidencyOperation,
    RevisionMetadata,
)
from weightctl.controller.core.tiers import TierCapacity, TierProfile

STATES = dict(zip("?-pcvx", range(6), strict=True))
IDENTITY = Identity(namespace="prod", resource_id="model", revision="v1", weight_generation=1)
MEMBER_BYTES = 100
ROOM = 10**9
TARGETS = {
    Operation.EVICTING: Residency.COLD,
    Operation.REHYDRATING: Residency.HOT,
    Operation.REPAIRING: Residency.HOT,
}


def group(count: int, *, size_bytes: int = MEMBER_BYTES) -> Members:
    """A group of `count` members: payloads, then the manifest, which sorts first by its key."""
    keys = [f"{payload_prefix(IDENTITY)}{index:06d}" for index in range(count - 1)]
    return Members(
        group_id=payload_group_id(IDENTITY),
        keys=(*keys, manifest_key(IDENTITY)),
        sizes_bytes=array("Q", [size_bytes] * count),
        sha256=bytes(32 * count),
        data_types=bytes([DataType.WEIGHT] * (count - 1) + [DataType.METADATA]),
    )


def view(name: str, letters: str, *, free_bytes: int = ROOM, **changes: Any) -> TierView:
    """One tier; a name that starts with `mem` is hot."""
    profile = TierProfile(name=name, kind="test", hot=name.startswith("mem"))
    capacity = TierCapacity(used_bytes=0, free_bytes=free_bytes, total_bytes=ROOM)
    states = bytes(STATES[letter] for letter in letters)
    fields: dict[str, Any] = {"profile": profile, "states": states, "capacity": capacity} | changes
    return TierView(**fields)


def record(members: Members, **changes: Any) -> RevisionMetadata:
    """A published record whose manifest reference matches the members."""
    payloads = members.keys[:-1]
    reference = ManifestReference(
        manifest_key=manifest_key(IDENTITY),
        manifest_sha256="0" * 64,
        payload_group_id=members.group_id,
        payload_keys_sha256=payload_keys_digest(payloads),
        payload_count=len(payloads),
        logical_bytes=sum(members.sizes_bytes[:-1]),
    )
    fields: dict[str, Any] = {
        "identity": IDENTITY,
        "manifest": reference,
        "availability": Availability.READY,
        "residency": Residency.HOT,
        "metadata_generation": 2,
    } | changes
    return RevisionMetadata(**fields)


def situation(
    tiers: Mapping[str, str] | tuple[TierView, ...],
    *,
    operation: Operation = Operation.NONE,
    target: Residency | None = None,
    availability: Availability = Availability.READY,
    residency: Residency = Residency.HOT,
    **changes: Any,
) -> Situation:
    """A situation from letters; `changes` are further fields of `Situation`."""
    if isinstance(tiers, Mapping):
        tiers = tuple(view(name, letters) for name, letters in tiers.items())
    members = changes.pop("members", None) or group(len(tiers[0].states))
    running = operation is not Operation.NONE
    work = ResidencyOperation(
        operation_id=7,
        identity=IDENTITY,
        operation=operation,
        target_residency=target or TARGETS.get(operation, Residency.UNKNOWN),
        fenced_metadata_generation=2,
    )
    fields: dict[str, Any] = {
        "record": record(
            members,
            availability=availability,
            residency=residency,
            operation=operation,
            operation_id=7 if running else 0,
        ),
        "operation": work if running else None,
        "members": members,
        "facts": examine(members),
        "views": tiers,
        "now_ms": 1_000_000,
    } | changes
    return Situation(**fields)
