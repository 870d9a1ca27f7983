"""The planner's table, row by row: states in, steps, waits and verdict out."""

from typing import Any

import pytest

from tests.support.situations import IDENTITY, MEMBER_BYTES, ROOM, group, situation, view
from weightctl.controller.core.plan import Leases, Plan
from weightctl.controller.core.planner import plan
from weightctl.controller.core.policy import Policy, Window
from weightctl.controller.core.records import Availability, Operation, Residency

EVICT, REHYDRATE, REPAIR = Operation.EVICTING, Operation.REHYDRATING, Operation.REPAIRING
COLD = {"target": Residency.COLD}


def steps(made: Plan) -> list[str]:
    """Steps as `kind source>target members`, members by their positions."""
    return [
        f"{step.kind} {step.source}>{step.target} {''.join(map(str, step.indexes()))}".strip()
        for step in made.steps
    ]


def waits(made: Plan) -> list[str]:
    return [str(wait.reason) for wait in made.waits]


Row = tuple[Operation, dict[str, str], dict[str, Any], list[str], list[str], str]
# name: operation, tiers, further situation, steps, waits, verdict
TABLE: dict[str, Row] = {
    "evict drops memory where a cold copy is verified": (
        EVICT, {"mem": "cc", "disk": "vv"}, {}, ["drop mem> 01"], [], "work"),
    "evict verifies a cold copy before it drops": (
        EVICT, {"mem": "cc", "disk": "cv"}, {}, ["verify disk> 0", "drop mem> 1"], [], "work"),
    "evict stores a missing cold copy first": (
        EVICT, {"mem": "cc", "disk": "-v"}, {}, ["store mem>disk 0", "drop mem> 1"], [], "work"),
    "evict waits for a cold copy in the making": (
        EVICT, {"mem": "cc", "disk": "pv"}, {}, ["drop mem> 1"], ["CopyInProgress"], "work"),
    "evict takes no answer of a cold tier for no copy": (
        EVICT, {"mem": "c-", "disk": "?v"}, {}, [], ["TierUnknown"], "waiting"),
    "evict drops although another cold tier is silent": (
        EVICT, {"mem": "cc", "disk": "vv", "dfs": "??"}, {}, ["drop mem> 01"], [], "work"),
    "evict is finished when all is seen in cold tiers only": (
        EVICT, {"mem": "--", "disk": "cc"}, {}, ["finish >"], [], "work"),
    "evict does not finish while memory is silent": (
        EVICT, {"mem": "?-", "disk": "vv"}, {}, [], ["TierUnknown"], "waiting"),
    "evict with nothing readable is lost and stays": (
        EVICT, {"mem": "--", "disk": "-v"}, {}, [], ["NothingReadable"], "lost"),
    "evict under a live lease drops nothing": (
        EVICT, {"mem": "cc", "disk": "vv"}, {"leases": Leases(count=1, nearest_expiry_ms=5)},
        [], ["LeaseLive"], "blocked"),
    "evict with a corrupt cold copy sets it aside first": (
        EVICT, {"mem": "cv", "disk": "xv"}, {}, ["quarantine disk> 0", "drop mem> 1"], [], "work"),
    "a wrong replica that is all there is stays": (
        EVICT, {"mem": "--", "disk": "xv"}, {}, [], ["NothingReadable"], "lost"),
    "a corrupt memory copy is set aside when a cold one is good": (
        EVICT, {"mem": "x-", "disk": "vv"}, {}, ["quarantine mem> 0"], [], "work"),
    "rehydrate stores what memory lacks": (
        REHYDRATE, {"mem": "c-", "disk": "cc"}, {}, ["store disk>mem 1"], [], "work"),
    "rehydrate is finished when memory has all": (
        REHYDRATE, {"mem": "cc", "disk": "c-"}, {}, ["finish >"], [], "work"),
    "rehydrate with a silent memory tier waits": (
        REHYDRATE, {"mem": "??", "disk": "cc"}, {}, [], ["TierUnknown"], "waiting"),
    "rehydrate with a silent only source waits": (
        REHYDRATE, {"mem": "c-", "disk": "c?"}, {}, [], ["TierUnknown"], "waiting"),
    "rehydrate with nothing readable is lost": (
        REHYDRATE, {"mem": "c-", "disk": "c-"}, {}, [], ["NothingReadable"], "lost"),
    "rehydrate does not need a settled tier": (
        REHYDRATE, {"mem": "c-", "disk": "cc"}, {"leases": Leases()}, ["store disk>mem 1"], [],
        "work"),
    "repair restores a lacking cold copy from a verified source": (
        REPAIR, {"mem": "vv", "disk": "-v"}, {}, ["store mem>disk 0"], [], "work"),
    "repair verifies its source first": (
        REPAIR, {"mem": "cv", "disk": "-v"}, {}, ["verify mem> 0"], [], "work"),
    "repair reads every replica back, in every tier": (
        REPAIR, {"mem": "cc", "disk": "vc", "dfs": "-c"}, {},
        ["verify mem> 01", "verify disk> 1", "verify dfs> 1"], [], "work"),
    "repair restores what is short before it reads the rest back": (
        REPAIR, {"mem": "vv", "disk": "-c"}, {}, ["store mem>disk 0", "verify disk> 1"], [],
        "work"),
    "repair sets a wrong copy aside and stores it again later": (
        REPAIR, {"mem": "vv", "disk": "xv"}, {}, ["quarantine disk> 0"], [], "work"),
    "repair towards hot restores memory too": (
        REPAIR, {"mem": "-v", "disk": "vv"}, {}, ["store disk>mem 0"], [], "work"),
    "repair towards cold leaves memory alone": (
        REPAIR, {"mem": "--", "disk": "vv"}, COLD, ["finish >"], [], "work"),
    "repair towards cold takes nothing away": (
        REPAIR, {"mem": "v-", "disk": "vv"}, COLD, ["finish >"], [], "work"),
    "repair towards cold adds the lacking copies first": (
        REPAIR, {"mem": "vv", "disk": "v-"}, COLD, ["store mem>disk 1"], [], "work"),
    "repair goes on although another tier is silent": (
        REPAIR, {"mem": "vv", "disk": "-v", "dfs": "??"}, {}, ["store mem>disk 0"], [], "work"),
    "repair of something lost is lost": (
        REPAIR, {"mem": "-v", "disk": "-v"}, {}, [], ["NothingReadable"], "lost"),
    "repair asks for two cold copies if the policy does": (
        REPAIR, {"mem": "vv", "disk": "vv", "dfs": "-v"}, {"policy": Policy(cold_copies=2)},
        ["store mem>dfs 0"], [], "work"),
    "more copies than cold tiers cannot be": (
        REPAIR, {"mem": "vv", "disk": "vv"}, {"policy": Policy(cold_copies=2)},
        [], ["NoTier"], "blocked"),
    "an idle revision as recorded needs nothing": (
        Operation.NONE, {"mem": "cc", "disk": "--"}, {}, [], [], "converged"),
    "drift of an idle revision is published": (
        Operation.NONE, {"mem": "--", "disk": "cc"}, {}, ["publish >"], [], "work"),
    "an idle revision that lost a member is not converged": (
        Operation.NONE, {"mem": "-c", "disk": "--"},
        {"availability": Availability.DEGRADED, "residency": Residency.MIXED},
        [], ["NothingReadable"], "lost"),
    "a loss that is not recorded yet is published": (
        Operation.NONE, {"mem": "-c", "disk": "x-"}, {},
        ["publish >"], ["NothingReadable"], "work"),
    "a silent tier is no drift": (
        Operation.NONE, {"mem": "??", "disk": "cc"}, {}, [], ["TierUnknown"], "waiting"),
    "a silent tier that cannot change the summary is no matter": (
        Operation.NONE, {"mem": "cc", "disk": "??"}, {}, [], [], "converged"),
}  # fmt: skip


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_published(row: Row) -> None:
    operation, tiers, changes, want_steps, want_waits, verdict = row
    made = plan(situation(tiers, operation=operation, **changes))
    assert (steps(made), waits(made), str(made.verdict)) == (want_steps, want_waits, verdict)


DELETING: dict[str, tuple[dict[str, str], dict[str, Any], list[str], list[str]]] = {
    "payloads go first from every tier": (
        {"mem": "cc", "disk": "vc"}, {}, ["drop mem> 0", "drop disk> 0"], []),
    "a wrong replica goes too": ({"mem": "-c", "disk": "xc"}, {}, ["drop disk> 0"], []),
    "the manifest goes last": (
        {"mem": "-c", "disk": "-c"}, {}, ["drop mem> 1", "drop disk> 1"], []),
    "the manifest stays while a payload may still be somewhere": (
        {"mem": "-c", "disk": "?c"}, {}, [], ["TierUnknown"]),
    "a payload in the making keeps the manifest": (
        {"mem": "pc", "disk": "-c"}, {}, [], ["CopyInProgress"]),
    "absence everywhere finishes": ({"mem": "--", "disk": "--"}, {}, ["finish_delete >"], []),
    "no answer is not absence": ({"mem": "--", "disk": "??"}, {}, [], ["TierUnknown"]),
    "a live lease keeps everything": (
        {"mem": "cc", "disk": "cc"}, {"leases": Leases(count=2, nearest_expiry_ms=9)},
        [], ["LeaseLive"]),
    "an unfinished tier does not keep others from dropping": (
        {"mem": "cc", "disk": "??"}, {}, ["drop mem> 0"], ["TierUnknown"]),
}  # fmt: skip


@pytest.mark.parametrize("row", DELETING.values(), ids=DELETING)
def test_deleting(row: tuple[dict[str, str], dict[str, Any], list[str], list[str]]) -> None:
    tiers, changes, want_steps, want_waits = row
    made = plan(situation(tiers, availability=Availability.DELETING, **changes))
    assert (steps(made), waits(made)) == (want_steps, want_waits)


def test_an_import_is_aborted_only_after_its_writer_was_silent_for_the_limit() -> None:
    running = situation({"mem": "pp"}, availability=Availability.IMPORTING, import_idle_ms=299_999)
    assert [wait.until_ms for wait in plan(running).waits] == [running.now_ms + 1]
    silent = situation({"mem": "pp"}, availability=Availability.IMPORTING, import_idle_ms=300_000)
    assert steps(plan(silent)) == ["abort_import >"]


def test_a_tombstone_needs_nothing() -> None:
    made = plan(situation({"mem": "cc"}, availability=Availability.DELETED))
    assert (made.steps, made.waits, str(made.verdict)) == ((), (), "converged")


@pytest.mark.parametrize("operation", [EVICT, REHYDRATE])
def test_a_plan_that_does_not_fit_moves_nothing_and_says_what_is_short(
    operation: Operation,
) -> None:
    full = 3 * MEMBER_BYTES - 1
    mem, disk = ("ccc", "---") if operation is EVICT else ("---", "ccc")
    tiers = (view("mem", mem, free_bytes=full), view("disk", disk, free_bytes=full))
    made = plan(situation(tiers, operation=operation))
    (wait,) = made.waits
    assert (steps(made), str(made.verdict), made.converges) == ([], "blocked", False)
    assert (wait.reason, wait.needed_bytes, wait.free_bytes) == ("NoCapacity", MEMBER_BYTES, full)


def test_a_tier_that_is_almost_full_takes_what_fits_and_the_next_the_rest() -> None:
    tiers = (
        view("mem", "ccc"),
        view("disk", "---", free_bytes=2 * MEMBER_BYTES),
        view("dfs", "---"),
    )
    policy = Policy(tier_preference=("disk", "dfs"))
    made = plan(situation(tiers, operation=EVICT, policy=policy))
    assert steps(made) == ["store mem>disk 01", "store mem>dfs 2"]
    assert made.bytes_by_pair == {("mem", "disk"): 200, ("mem", "dfs"): 100}
    assert made.needed_bytes == {"mem": 0, "disk": 200, "dfs": 100}
    assert made.converges


def test_bytes_come_from_the_fastest_readable_tier() -> None:
    slow, fast = view("disk", "cc"), view("dfs", "c-")
    fast = view("dfs", "c-", profile=_faster(fast.profile))
    made = plan(situation((view("mem", "--"), slow, fast), operation=REHYDRATE))
    assert steps(made) == ["store dfs>mem 0", "store disk>mem 1"]


def _faster(profile: Any) -> Any:
    return type(profile)(name=profile.name, kind="test", hot=False, bandwidth_bytes_per_s=10**9)


def test_nothing_is_dropped_until_every_tier_has_settled() -> None:
    tiers = (view("mem", "cc"), view("disk", "vv", settled=False, settles_at_ms=77))
    made = plan(situation(tiers, operation=EVICT))
    assert (steps(made), [(w.reason, w.until_ms) for w in made.waits]) == ([], [("Unsettled", 77)])


@pytest.mark.parametrize(
    "policy, reason, until_ms",
    [
        (Policy(paused=True), "Paused", None),
        (Policy(windows=(Window(start_minute=60, end_minute=120),)), "WindowClosed", 3_600_000),
    ],
)
def test_no_bytes_move_outside_the_window(
    policy: Policy, reason: str, until_ms: int | None
) -> None:
    made = plan(situation({"mem": "cc", "disk": "-v"}, operation=EVICT, policy=policy))
    assert (steps(made), [(w.reason, w.until_ms) for w in made.waits]) == ([], [(reason, until_ms)])


def test_a_window_may_wrap_midnight() -> None:
    night = Window(start_minute=23 * 60, end_minute=60)
    minute = 60_000
    assert [night.wait_ms(m * minute) for m in (0, 59, 60, 22 * 60, 23 * 60)] == [
        0, 0, 22 * 60 * minute, 60 * minute, 0,
    ]  # fmt: skip


def test_progress_is_what_is_observed() -> None:
    made = plan(situation({"mem": "c--", "disk": "vvv"}, operation=EVICT))
    assert (made.processed_members, made.total_members) == (2, 3)
    assert made.cursor == f"weights/prod/model/v1/{IDENTITY.weight_generation}/manifest"


@pytest.mark.parametrize(
    "mem, disk, availability, residency",
    [
        ("ccc", "---", Availability.READY, Residency.HOT),
        ("---", "ccc", Availability.READY, Residency.COLD),
        ("ccc", "ccc", Availability.READY, Residency.HOT),
        ("c--", "ccc", Availability.READY, Residency.MIXED),
        ("---", "---", Availability.DEGRADED, Residency.ABSENT),
        ("cc-", "---", Availability.DEGRADED, Residency.MIXED),
        ("--c", "---", Availability.DEGRADED, Residency.MIXED),
        ("xcc", "---", Availability.DEGRADED, Residency.MIXED),
        ("ppp", "---", Availability.DEGRADED, Residency.ABSENT),
        ("?cc", "ccc", Availability.READY, None),
        ("?cc", "-cc", None, None),
        ("ccc", "???", Availability.READY, Residency.HOT),
    ],
)
def test_aggregation(
    mem: str, disk: str, availability: Availability | None, residency: Residency | None
) -> None:
    made = plan(situation({"mem": mem, "disk": disk}))
    assert (made.availability, made.residency) == (availability, residency)


def test_a_group_that_is_not_what_the_manifest_promises_is_degraded() -> None:
    members = group(3)
    found = situation({"mem": "cc"}, members=group(2))
    promised = situation({"mem": "ccc"}, members=members).record
    made = plan(
        type(found)(
            record=promised,
            operation=None,
            members=found.members,
            facts=found.facts,
            views=found.views,
            now_ms=0,
        )
    )
    assert (made.availability, made.residency) == (Availability.DEGRADED, Residency.MIXED)


def test_room_is_what_the_tiers_say() -> None:
    made = plan(situation({"mem": "c", "disk": "-"}, operation=EVICT))
    assert made.free_bytes == {"mem": ROOM, "disk": ROOM}
