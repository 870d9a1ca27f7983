"""One document of each kind that is built from records, from fixed values.

`python -m tests.support.golden_documents > tests/data/documents.json` writes them down anew; the
difference is a change of the public JSON and belongs into the changelog.
"""

import json
import sys
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.sim_tier import SimTier
from tests.support.situations import IDENTITY, group, record, situation
from weightctl.controller.api import explain, importing, reads, views
from weightctl.controller.api.documents import DemoKill, DemoStep
from weightctl.controller.api.planning import purpose
from weightctl.controller.cli.commands.demo import closing
from weightctl.controller.cli.demo.model import Fingerprint
from weightctl.controller.core.forecast import forecast
from weightctl.controller.core.identity import manifest_key, payload_group_id, payload_prefix
from weightctl.controller.core.observation import Members, MemberState, TierObservation
from weightctl.controller.core.oplog import LeaseUpsert, MetadataUpsert
from weightctl.controller.core.plan import Leases
from weightctl.controller.core.planner import plan
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import (
    Availability,
    DataType,
    Operation,
    Residency,
    ResidencyOperation,
    RevisionLease,
    RevisionView,
)
from weightctl.controller.core.refusals import not_ready
from weightctl.controller.core.state import WeightState
from weightctl.controller.core.tiers import Capabilities, TierCapacity, TierProfile
from weightctl.controller.errors import CapacityError
from weightctl.controller.ports import InventoryItem
from weightctl.controller.store.oplog import LogEntry, LogReport
from weightctl.controller.weightstore.adoptable import Obstacle
from weightctl.controller.weightstore.drafting import Draft
from weightctl.controller.weightstore.layout import ImportLayout, Payload, build_manifest
from weightctl.controller.weightstore.placement import Standing, no_place
from weightctl.controller.weightstore.preview import Preview

NOW_MS = 1_700_000_000_000
LEASE = RevisionLease(
    lease_id=3,
    identity=IDENTITY,
    holder="reader",
    expires_at_ms=NOW_MS + 60_000,
    fenced_metadata_generation=2,
)
OPERATION = ResidencyOperation(
    operation_id=7,
    identity=IDENTITY,
    operation=Operation.EVICTING,
    target_residency=Residency.COLD,
    fenced_metadata_generation=3,
    started_at_ms=NOW_MS - 2000,
    updated_at_ms=NOW_MS - 1000,
    processed_members=1,
    total_members=4,
    cursor="weights/prod/model/v1/1/payload/000000",
)


def _state() -> WeightState:
    state = WeightState()
    busy = record(
        group(4),
        operation=Operation.EVICTING,
        operation_id=7,
        metadata_generation=3,
        created_at_ms=NOW_MS - 9000,
        updated_at_ms=NOW_MS - 2000,
    )
    state.put_metadata(busy)
    state.put_operation(OPERATION)
    state.put_lease(LEASE)
    return state


def _entry(sequence: int, value: Any, problem: str = "") -> LogEntry:
    return LogEntry(
        sequence=sequence,
        time_ms=NOW_MS,
        entry_type=8 if isinstance(value, MetadataUpsert) else 10,
        tenant_id="default",
        key="weight-lease:3",
        payload=b"",
        value=value,
        problem=problem,
    )


def _step() -> DemoStep:
    """A step of the demo that was killed twice, once too late."""
    copying = DemoKill(round=1, point=0.25, stage="copying", done=4, total=15, unit="members")
    missed = DemoKill(round=1, point=0.99, stage="missed", done=0, total=0, unit="members")
    return {
        "name": "rehydrate",
        "ok": True,
        "verified": "HOT",
        "kills": 2,
        "killed": [copying, missed],
        "seconds": 1.5,
        "residency": "HOT",
        "usedBytes": {"memory": 30},
    }


def _import_plan() -> Any:
    """A resumed import for which the cold tier has no room."""
    payload = Payload(key=f"{payload_prefix(IDENTITY)}00000000", file=0, offset=8, nbytes=7)
    layout = ImportLayout(payloads=(payload,), tensors=(), fragments=())
    manifest = build_manifest(IDENTITY, layout, 0)
    members = Members(
        group_id=payload_group_id(IDENTITY),
        keys=[manifest_key(IDENTITY), payload.key],
        sizes_bytes=array("Q", [400, 7]),
        sha256=bytes(64),
        data_types=bytes([DataType.METADATA, DataType.WEIGHT]),
    )
    seen = TierObservation(states=bytes([MemberState.ABSENT, MemberState.COMPLETE]), epoch="1")
    hot, cold = SimTier("memory", hot=True), SimTier("local_disk", hot=False)
    fits = Standing(tier=hot, needed_bytes=400, free_bytes=1000, seen=seen)
    full = Standing(tier=cold, needed_bytes=407, free_bytes=9, seen=seen)
    wrong = no_place([full], "persistent cold", members.group_id)
    preview = Preview(
        identity=IDENTITY,
        source="/models/model.safetensors",
        draft=Draft(layout=layout, manifest=manifest, members=members, manifest_bytes=400),
        record=record(group(2), availability=Availability.IMPORTING),
        members=members,
        read_bytes=0,
        standings=[fits, full],
        targets=[fits],
        obstacles=[Obstacle(key="", tier="", error=wrong)],
    )
    return importing.document(preview, [hot, cold])


def documents() -> list[Any]:
    """All of them, in a fixed order."""
    state = _state()
    busy = state.metadata[IDENTITY]
    held = situation(
        {"memory": "ccc", "local_disk": "c--", "dfs": "???"},
        operation=Operation.EVICTING,
        leases=Leases(count=1, nearest_expiry_ms=NOW_MS + 60_000),
    )
    profile = TierProfile(
        name="dfs", kind="dfs", hot=False, capabilities=Capabilities(persistent=True, shared=True)
    )
    room = TierCapacity(used_bytes=10, free_bytes=90, total_bytes=100)
    log = [
        _entry(1, MetadataUpsert(metadata=busy, operation=OPERATION)),
        _entry(2, LeaseUpsert(lease=LEASE)),
        _entry(3, None, "checksum"),
    ]
    report = LogReport(
        ok=False, problem="torn", first_sequence=1, last_sequence=3, entries=3, snapshot_rows=0
    )
    return [
        views.keys(IDENTITY),
        views.revision(RevisionView(metadata=busy, active_lease_count=1), OPERATION),
        reads.list_all(state, page_token="", limit=1, now_ms=NOW_MS),
        views.lease(LEASE, live=True),
        reads.leases(state, IDENTITY, NOW_MS + 60_000),
        explain.explain(state, IDENTITY, Policy(paused=True), now_ms=NOW_MS, rounds=(plan(held),)),
        views.plan(IDENTITY, purpose(busy), forecast(held)),
        views.plan(
            IDENTITY,
            purpose(replace(busy, operation=Operation.NONE, availability=Availability.DELETING)),
            forecast(situation({"memory": "cc", "nof": "-c"}, availability=Availability.DELETING)),
        ),
        {
            "apiVersion": views.API_VERSION,
            "kind": "TierList",
            "items": [views.tier(profile, room, ""), views.tier(profile, None, "no answer")],
        },
        {
            "apiVersion": views.API_VERSION,
            "kind": "OrphanList",
            "items": [
                views.orphan(
                    "nof",
                    "weight:5a",
                    "NoOwner: no record and no row of the directory",
                    [InventoryItem(key="k", instance_id="1", size_bytes=9, state="complete")],
                )
            ],
        },
        _import_plan(),
        reads.oplog_page(log, 3),
        reads.oplog_report(report),
        views.error(not_ready(IDENTITY, "it is IMPORTING")),
        views.error(CapacityError(2, 1, "tier memory", "it is full", "evict something")),
        closing(Path("model"), Fingerprint(tensors={}, size_bytes=30), 7, [[_step()], [_step()]]),
    ]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(documents(), indent=2) + "\n")
