"""The payload group beside its record: commit validation and the guard.  Layer: core (pure).

Owns what must be seen before a revision becomes READY, and which groups the generic object paths
leave alone.  What was not seen readable is not ready, never absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from weightctl.controller.core.identity import (
    U64_MAX,
    manifest_key,
    payload_keys_digest,
)
from weightctl.controller.core.observation import Members
from weightctl.controller.core.records import Availability, DataType, ManifestReference
from weightctl.controller.core.refusals import conflict, not_found, not_ready
from weightctl.controller.errors import require

if TYPE_CHECKING:
    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.state import WeightState
    from weightctl.controller.errors import WeightError

_REGISTER = "register exactly the manifest and the payloads that it names, then commit again"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """One fresh look at a group: its registered members and, per member, 1 if readable else 0.

    A member is readable when a complete replica of it is served by some tier; unknown is 0.
    """

    members: Members
    readable: bytes

    def __post_init__(self) -> None:
        require(
            len(self.readable) == len(self.members),
            f"group {self.members.group_id}: readable bytes do not match the members",
        )


def validate_group(identity: Identity, reference: ManifestReference, group: GroupSnapshot) -> None:
    """Commit validation against the physical group, in the contract's order.

    Raises NOT_FOUND, CONFLICT or NOT_READY; of faulty members the first in key order counts.
    """
    members = group.members
    key = manifest_key(identity)
    if reference.manifest_key != key:
        raise conflict(f"revision {identity}: manifest key", "it is not the derived one", _REGISTER)
    if len(members) == 0:
        raise not_found(f"revision {identity}: payload group", "no member is registered")
    if members.group_id != reference.payload_group_id:
        raise conflict(
            f"revision {identity}: payload group", "its members name another group", _REGISTER
        )
    if len(members) != reference.payload_count + 1:
        raise conflict(
            f"revision {identity}: payload group",
            f"it has {len(members)} members, expected {reference.payload_count} and the manifest",
            _REGISTER,
        )
    fault = _first_member_fault(identity, key, group)
    if fault is not None:
        raise fault
    if key not in members.keys:
        raise not_found(f"revision {identity}: manifest {key}", "it is not in the payload group")
    _validate_payloads(identity, reference, members)


def _first_member_fault(identity: Identity, key: str, group: GroupSnapshot) -> WeightError | None:
    """The fault of the first faulty member in key order; readability counts before the type."""
    members, wrong = group.members, _first_wrong_type(key, group.members)
    unreadable = group.readable.find(0)
    if unreadable >= 0 and (wrong is None or unreadable <= wrong):
        return not_ready(
            identity,
            f"member {members.keys[unreadable]} has no readable replica",
            "finish writing that member, then commit again",
        )
    if wrong is None:
        return None
    return conflict(
        f"revision {identity}: member {members.keys[wrong]}",
        "it is registered twice or with the wrong data type, or the sizes overflow",
        _REGISTER,
    )


def _first_wrong_type(key: str, members: Members) -> int | None:
    """Index of the first member that is no WEIGHT, or as the manifest no METADATA."""
    expected = bytearray([DataType.WEIGHT]) * len(members)
    manifests = [] if key not in members.keys else [members.keys.index(key)]
    for index in manifests:
        expected[index] = DataType.METADATA
    if members.data_types == expected and sum(members.sizes_bytes) <= U64_MAX:
        return None
    total = 0
    for index, data_type in enumerate(members.data_types):
        total += 0 if index in manifests else members.sizes_bytes[index]
        if data_type != expected[index] or total > U64_MAX:
            return index
    return None


def _validate_payloads(identity: Identity, reference: ManifestReference, members: Members) -> None:
    key = reference.manifest_key
    manifest_bytes = members.sizes_bytes[members.keys.index(key)]
    total_bytes = sum(members.sizes_bytes) - manifest_bytes
    if total_bytes != reference.logical_bytes:
        raise conflict(
            f"revision {identity}: payload group",
            f"its payloads have {total_bytes} bytes, declared are {reference.logical_bytes}",
            _REGISTER,
        )
    payloads = [name for name in members.keys if name != key]
    if (
        len(payloads) != reference.payload_count
        or payload_keys_digest(payloads) != reference.payload_keys_sha256
    ):
        raise conflict(
            f"revision {identity}: payload group",
            "the digest of its payload keys is not the declared one",
            _REGISTER,
        )


def owner_of(state: WeightState, tenant_id: str, group_id: str) -> Identity | None:
    """The revision, in any state, tombstones included, that manages a tenant's group.

    Groups are scoped by tenant: under one name, that of another tenant is another group.
    """
    identity = state.groups.get(group_id)
    return identity if identity is not None and identity.tenant_id == tenant_id else None


def is_managed(state: WeightState, tenant_id: str, group_id: str) -> bool:
    """Whether a tenant's group belongs to a revision."""
    return owner_of(state, tenant_id, group_id) is not None


def may_change_members(state: WeightState, tenant_id: str, group_id: str) -> bool:
    """Whether members may be written: the group is not managed, or its revision is IMPORTING."""
    identity = owner_of(state, tenant_id, group_id)
    return identity is None or state.metadata[identity].availability == Availability.IMPORTING
