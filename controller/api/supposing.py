"""What the records would be if a verb were carried out.  Layer: api; pure, writes nothing.

The same `prepare_*` functions that the store uses are asked on a state that holds one revision
only, so a dry run is refused exactly where the real call would be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from weightctl.controller.core import lifecycle, starts
from weightctl.controller.core.plan import Leases
from weightctl.controller.core.records import Availability, Residency
from weightctl.controller.core.state import WeightState
from weightctl.controller.core.steps import existing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weightctl.controller.core.damage import DamagedReplica
    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.records import (
        ResidencyOperation,
        RevisionLease,
        RevisionMetadata,
    )


def owners(
    records: Iterable[RevisionMetadata], listed: Iterable[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """Group ids that a revision or a row of the directory owns, and those of tombstones."""
    live, deleted = set(listed), set[str]()
    for record in records:
        gone = record.availability is Availability.DELETED
        (deleted if gone else live).add(record.manifest.payload_group_id)
    return frozenset(live), frozenset(deleted - live)


TARGETS = {"evict": Residency.COLD, "rehydrate": Residency.HOT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One revision as a store holds it."""

    record: RevisionMetadata
    operation: ResidencyOperation | None
    leases: tuple[RevisionLease, ...] = ()
    damage: tuple[DamagedReplica, ...] = ()
    """Its replicas that are known to be damaged."""

    @property
    def identity(self) -> Identity:
        """Which revision."""
        return self.record.identity

    def live_leases(self, now_ms: int) -> Leases:
        """Count and nearest expiry of the leases that count now."""
        live = self.state().active_leases(self.identity, now_ms)
        nearest = min((lease.expires_at_ms for lease in live), default=None)
        return Leases(count=len(live), nearest_expiry_ms=nearest)

    def state(self) -> WeightState:
        """A state that holds this revision only."""
        state = WeightState()
        state.put_metadata(self.record)
        if self.operation is not None:
            state.put_operation(self.operation)
        for lease in self.leases:
            state.put_lease(lease)
        return state


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A verb and what its caller said; `expected_generation` None: whatever it is now."""

    verb: str
    expected_generation: int | None = None
    target: Residency | None = None
    """Of a repair; None repairs the revision where it is."""


def subjects(state: WeightState) -> Iterable[Subject]:
    """Every revision of a state that is no tombstone, identity order."""
    for identity in sorted(state.metadata, key=lambda identity: identity.sort_key()):
        if state.metadata[identity].availability is not Availability.DELETED:
            yield subject(state, identity)


def subject(state: WeightState, identity: Identity) -> Subject:
    """One revision of a state.  Raises NOT_FOUND."""
    record = existing(state, identity)
    return Subject(
        record=record,
        operation=state.current_operation(record),
        leases=tuple(state.leases_of(identity)),
    )


def repair_target(record: RevisionMetadata, wanted: Residency | None) -> Residency:
    """Where a repair brings a revision: as asked, else cold for a cold one and hot for others."""
    if wanted is not None:
        return wanted
    return Residency.COLD if record.residency is Residency.COLD else Residency.HOT


def suppose(
    subject: Subject, wish: Wish, *, member_count: int, copies_short: bool, now_ms: int
) -> Subject:
    """The revision after the wish was recorded.  Raises what the store would raise."""
    record = subject.record
    expected = wish.expected_generation or record.metadata_generation
    call: dict[str, Any] = {
        "identity": subject.identity,
        "expected_metadata_generation": expected,
        "now_ms": now_ms,
    }
    if wish.verb == "delete":
        importing = record.availability is Availability.IMPORTING
        remove = lifecycle.prepare_abort if importing else lifecycle.prepare_delete
        mutation = remove(subject.state(), **call)
        return replace(subject, record=mutation.next or record, leases=())
    call["member_count"] = member_count
    if wish.verb == "repair":
        call |= {
            "target_residency": repair_target(record, wish.target),
            "copies_short": copies_short,
        }
        started = starts.prepare_repair(subject.state(), **call)
    else:
        call["target_residency"] = TARGETS[wish.verb]
        started = starts.prepare_start(subject.state(), **call)
    return replace(
        subject,
        record=started.metadata.next or record,
        operation=started.next or subject.operation,
    )
