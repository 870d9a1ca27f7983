"""Plain objects in tiers: where their replicas are, and dropping exactly those.  Layer: store.

A tier that did not answer is never taken for one that holds nothing, and a drop counts only when
the tier said so.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from typing import TYPE_CHECKING

from weightctl.controller.core.identity import text_bytes
from weightctl.controller.core.observation import Member, Members, MemberState
from weightctl.controller.core.records import DataType
from weightctl.controller.errors import TransientError
from weightctl.controller.ports import Done, DropItem, NoOp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weightctl.controller.core.observation import TierObservation
    from weightctl.controller.errors import WeightctlError
    from weightctl.controller.ports import Fence, Outcome, Tier
    from weightctl.controller.store.archive import StoredObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """What one tier says of one object; `item` drops the copy that was seen."""

    stored: StoredObject
    state: int
    item: DropItem | None


def tier_group_id(tenant_id: str, group_id: str) -> str:
    """Name of a tenant's plain group in the tiers; never that of a managed one."""
    raw = text_bytes(tenant_id) + b"\0" + text_bytes(group_id)
    return f"object:{sha256(raw).hexdigest()}"


def key_of(stored: StoredObject) -> str:
    """The object's key as text."""
    return stored[2].key.decode("utf-8", "surrogateescape")


def member_of(stored: StoredObject) -> Member:
    """A plain object as tiers know it."""
    tenant_id, group_id, row = stored
    return Member(
        group_id=tier_group_id(tenant_id, group_id),
        key=key_of(stored),
        size_bytes=row.size_bytes,
        sha256=row.sha256,
        data_type=DataType(row.data_type),
    )


async def locate(objects: Sequence[StoredObject], tier: Tier) -> list[Replica]:
    """What a tier holds of each object, group by group, in the order given."""
    replicas: list[Replica] = []
    for _, group in groupby(objects, key=lambda stored: stored[:2]):
        batch = list(group)
        members = _members(batch)
        seen = await tier.observe(members, detail=range(len(batch)))
        replicas += [
            _replica(stored, members.member(index), seen, index)
            for index, stored in enumerate(batch)
        ]
    return replicas


def _replica(stored: StoredObject, member: Member, seen: TierObservation, index: int) -> Replica:
    detail = seen.details.get(index)
    item = None if detail is None else DropItem(member=member, instance_id=detail.instance_id)
    return Replica(stored=stored, state=seen.states[index], item=item)


async def drop(
    replicas: Sequence[Replica], tier: Tier, fence: Fence
) -> list[WeightctlError | None]:
    """Drop the copies that were seen; None where the object is certainly not in the tier."""
    items = [replica.item for replica in replicas if replica.item is not None]
    outcomes = iter(await tier.drop(items, fence) if items else ())
    failures: list[WeightctlError | None] = []
    for replica in replicas:
        key = key_of(replica.stored)
        if replica.item is not None:
            failures.append(failure_of(key, tier, next(outcomes)))
        elif replica.state == MemberState.ABSENT:
            failures.append(None)
        else:
            failures.append(_not_done(key, tier, "the tier did not say what it holds"))
    return failures


def failure_of(key: str, tier: Tier, outcome: Outcome) -> WeightctlError | None:
    """The error of a store that did not succeed."""
    return None if isinstance(outcome, Done | NoOp) else _not_done(key, tier, repr(outcome))


def _not_done(key: str, tier: Tier, why: str) -> TransientError:
    return TransientError(
        f"object {key} in tier {tier.profile.name}", why, "try again; the object stays known"
    )


def _members(objects: Sequence[StoredObject]) -> Members:
    rows = [row for _, _, row in objects]
    return Members(
        group_id=tier_group_id(*objects[0][:2]),
        keys=[key_of(stored) for stored in objects],
        sizes_bytes=array("Q", [row.size_bytes for row in rows]),
        sha256=b"".join(row.sha256 for row in rows),
        data_types=bytes(row.data_type for row in rows),
        hard_pin=bytes(row.hard_pin for row in rows),
    )
