"""When a parking segment goes, round by round: what is on it may be others' only copy."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.mooncake.fake import FakeMooncake
from tests.support.virtual_time import VirtualClock
from weightctl.adapters.conformance.suite.material import member_of
from weightctl.adapters.mooncake.master.admin import Segment
from weightctl.adapters.mooncake.master.replicas import Entry, InMemory
from weightctl.adapters.mooncake.ownership.book import Row
from weightctl.adapters.mooncake.parking import lot as parking
from weightctl.adapters.mooncake.parking.drain import Drains, Job
from weightctl.adapters.mooncake.parking.lot import LostError, Lot
from weightctl.adapters.mooncake.parking.moves import Moves
from weightctl.controller.errors import TransientError

APPEAR_S, LEASE_S = 10.0, 2.5
GRACE_S = 3
"""The lease, in whole seconds."""
A, B = member_of("a", b"content"), member_of("b", b"content")
OURS = {"a": 7, "b": 7}
ROWS = [
    Row(
        key=member.key,
        group_id=member.group_id,
        size_bytes=member.size_bytes,
        sha256=member.sha256,
        token="t",
        owner="",
    )
    for member in (A, B)
]
RUNNING = Job(status="RUNNING", failed=0, blocked=2, active=0, counted_at_ms=1)


class Rows(dict[str, Row]):
    """A book without a file."""

    def put(self, rows: Iterable[Row]) -> None:
        self.update({row.key: row for row in rows})


class Scene:
    """A cluster with the lot and two hosts, as far as a lot uses its connection."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.options = SimpleNamespace(appear_s=APPEAR_S, lease_ttl_s=LEASE_S, deadline_s=1.0)
        self.context = SimpleNamespace(clock=self.clock)
        self.clients = self.look = self.segments = self.serving = self.reads = self
        self.book = Rows({row.key: row for row in ROWS})
        self.status = "DRAINING"
        """Of the lot's segment; empty when it is not listed."""
        self.here = dict(OURS)
        """Sizes of what lies on the lot, whosever it is; all else is on a host."""
        self.doubted: set[str] = set()
        """Members without a cold copy that counts."""
        self.job: Job | None = RUNNING
        self.token, self.code = "t", 0
        self.host_status = "OK"
        self.task, self.moved = "SUCCESS", 0
        """What the library answers for a task, and for a move."""
        self.done: list[tuple[Any, ...]] = []

    def did(self, name: str) -> list[tuple[Any, ...]]:
        """What was asked under that name, since this was asked last."""
        found = [arguments for asked, *arguments in self.done if asked == name]
        self.done = [one for one in self.done if one[0] != name]
        return [tuple(one) for one in found]

    # --- the connection ---

    def pool(self, *_: object) -> None:
        return None

    @asynccontextmanager
    async def client_of(self, _: object) -> AsyncIterator[tuple[Any, str]]:
        yield self, self.token

    async def call(self, method: Callable[..., Any], *args: Any) -> Any:
        self.done.append((method.__name__, *args))
        answers = {
            "unmount": self.code,
            "move": ((1, 1), self.moved),
            "task": (self.task, ""),
        }
        return answers.get(method.__name__)

    async def listed(self) -> list[Segment]:
        hosts = [segment("host0", "OK", used=2), segment("host1", self.host_status, used=1)]
        return [*hosts, *([segment("lot", self.status)] if self.status else [])]

    async def entries(self, keys: Sequence[str]) -> tuple[dict[str, Entry], str]:
        return {key: self._entry(key) for key in keys}, "epoch"

    async def scan(self, keys: Sequence[str], take: Callable[..., None]) -> str:
        take(0, keys, {key: self._entry(key) for key in keys})
        return "epoch"

    def _entry(self, key: str) -> Entry:
        at = "lot" if key in self.here else "host1"
        size_bytes = self.here.get(key, 7)
        return Entry(
            ok=True, memory=[InMemory(size_bytes=size_bytes, endpoint=f"{at}:e", address=1)]
        )

    async def all_keys(self) -> list[str]:
        return [*OURS, *(key for key in self.here if key not in OURS)]

    async def health(self) -> Any:
        return SimpleNamespace(address="m:1")

    def note(self, group_id: str) -> None:
        self.done.append(("note", group_id))

    # --- the drain jobs ---

    def begin(self, name: str) -> str:
        self.done.append(("begin", name))
        return "job"

    def cancel(self, job: str) -> None:
        self.done.append(("cancel", job))


def segment(name: str, status: str, *, used: int = 0) -> Segment:
    return Segment(
        name=name,
        segment_id=f"id-{name}",
        client_id=name,
        endpoint=f"{name}:e",
        status=status,
        used_bytes=used,
        capacity_bytes=100,
    )


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene()

    async def doubts(_: object, members: Iterable[Any], __: Mapping[str, Entry]) -> dict[str, str]:
        return {one.key: "its copy does not count" for one in members if one.key in made.doubted}

    jobs = SimpleNamespace(begin=made.begin, look=lambda _: made.job, cancel=made.cancel)
    monkeypatch.setattr(parking, "doubts", doubts)
    monkeypatch.setattr(parking, "Drains", lambda *_: jobs)
    return made


@pytest.fixture
def lot(scene: Scene) -> Any:
    """It is filled, and drained."""
    made: Any = Lot(scene, [A, B])  # type: ignore[arg-type]
    made._ids, made._name, made.endpoint, made._job = ["id-lot"], "lot", "lot:e", "job"
    return made


# --- drained ------------------------------------------------------------------------------------


async def test_a_lot_goes_when_all_that_was_counted_on_it_twice_may_go(
    scene: Scene, lot: Any
) -> None:
    await lot._round()
    assert not scene.did("unmount"), "counted once"
    await lot._round()
    assert not scene.did("unmount"), "it is the same count"
    scene.job = replace_job(counted_at_ms=2)
    await lot._round()
    assert scene.did("unmount") == [(["id-lot"], GRACE_S)]


def replace_job(**changes: Any) -> Job:
    fields = {name: getattr(RUNNING, name) for name in RUNNING.__struct_fields__}
    return Job(**{**fields, **changes})


@pytest.mark.parametrize(
    "changes, doubted, here",
    [
        pytest.param({"blocked": 3}, "", OURS, id="others-are-on-it"),
        pytest.param({"blocked": 1}, "", OURS, id="fewer-were-counted"),
        pytest.param({"active": 1}, "", OURS, id="something-is-being-moved"),
        pytest.param({"blocked": 1}, "b", OURS, id="another-than-the-safe-one-may-be-meant"),
        pytest.param({"blocked": 0}, "ab", OURS, id="no-copy-counts"),
        pytest.param({"blocked": 0}, "", {}, id="none-is-on-it"),
        pytest.param({"status": "PENDING"}, "", OURS, id="nobody-counts-yet"),
        pytest.param({"status": "CANCELED"}, "", OURS, id="nobody-counts-any-more"),
        pytest.param({"status": "FAILED"}, "", OURS, id="the-job-has-failed"),
    ],
)
async def test_a_lot_stays_while_the_count_does_not_prove_that_all_on_it_may_go(
    scene: Scene, lot: Any, changes: dict[str, Any], doubted: str, here: dict[str, int]
) -> None:
    scene.doubted, scene.here = set(doubted), dict(here)
    for count in range(4):
        scene.job = replace_job(counted_at_ms=count, **changes)
        await lot._round()
    assert not scene.did("unmount")


async def test_both_counts_are_of_the_same_members(scene: Scene, lot: Any) -> None:
    for count, here in enumerate(["a", "b", "a", "b"]):
        scene.here = {here: 7}
        scene.job = replace_job(blocked=1, counted_at_ms=count)
        await lot._round()
        assert not scene.did("unmount")
    scene.job = replace_job(blocked=1, counted_at_ms=9)
    await lot._round()
    assert scene.did("unmount")


async def test_a_count_that_did_not_fit_begins_the_proof_anew(scene: Scene, lot: Any) -> None:
    await lot._round()
    for count, blocked in enumerate([3, 2], 2):
        scene.job = replace_job(counted_at_ms=count, blocked=blocked)
        await lot._round()
        assert not scene.did("unmount")


@pytest.mark.parametrize("active, cancelled", [(0, [("job",)]), (1, [])])
async def test_a_job_that_gave_something_up_counts_no_more_and_is_begun_anew(
    scene: Scene, lot: Any, active: int, cancelled: list[object]
) -> None:
    scene.job = replace_job(failed=1, active=active)
    await lot._round()
    assert scene.did("cancel") == cancelled
    assert not scene.did("unmount")


@pytest.mark.parametrize("status, target", [("OK", "host1"), ("DRAINING", "host0")])
async def test_what_is_on_it_and_may_not_go_is_moved_to_the_host_with_most_room_that_takes_it(
    scene: Scene, lot: Any, status: str, target: str
) -> None:
    scene.here, scene.host_status = {**OURS, "kv": 9}, status
    scene.job = replace_job(blocked=3)
    await lot._round()
    assert scene.did("move") == [("kv", "lot", target)]


async def test_where_nobody_counts_everything_is_moved_away(scene: Scene, lot: Any) -> None:
    scene.job = None
    await lot._round()
    assert [key for key, _, _ in scene.did("move")] == ["a", "b"]


async def test_members_are_leased_while_the_master_moves_away_what_it_may(
    scene: Scene, lot: Any
) -> None:
    await lot._round()
    ((touched,),) = scene.did("touch")
    assert set(touched) == {"a", "b"}
    assert scene.did("note") == [(A.group_id,)] * 2, "our own reading counts as a lease"


async def test_a_lot_that_is_drained_goes_at_once_unless_something_is_on_it(
    scene: Scene, lot: Any
) -> None:
    scene.status = "DRAINED"
    await lot._round()
    assert not scene.did("unmount")
    assert [key for key, _, _ in scene.did("move")] == ["a", "b"]
    scene.here = {}
    await lot._round()
    assert not scene.did("unmount"), "nothing was listed this time"
    scene.clock.jump(60)
    await lot._round()
    assert scene.did("unmount") == [(["id-lot"], 0)]


# --- filled -------------------------------------------------------------------------------------


async def test_a_lot_is_drained_when_nothing_can_come_onto_it_any_more(
    scene: Scene, lot: Any
) -> None:
    scene.status, scene.here, scene.doubted = "OK", {}, {"b"}
    await lot._round()
    assert scene.did("move") == [("a", "host1", "lot")], "what has no copy that counts stays away"
    assert not scene.did("begin")
    scene.here = {"a": 7}
    await lot._round()
    assert not scene.did("move")
    assert [name for name, *_ in scene.done if name in {"touch", "begin"}] == ["touch", "begin"]


async def test_what_cannot_be_moved_onto_it_is_waited_for_a_while_only(
    scene: Scene, lot: Any
) -> None:
    scene.status, scene.here = "OK", {}
    await lot._round()
    assert not scene.did("begin")
    scene.clock.jump(APPEAR_S)
    await lot._round()
    assert scene.did("begin") == [("lot",)]


# --- unmounted ----------------------------------------------------------------------------------


async def test_in_its_grace_only_what_may_not_go_any_more_is_moved_away(
    scene: Scene, lot: Any
) -> None:
    scene.status, scene.doubted = "GRACEFULLY_UNMOUNTING", {"b"}
    await lot._round()
    assert [key for key, _, _ in scene.did("move")] == ["b"]
    assert not scene.did("touch"), "a lease would promote what has just gone"
    scene.status = ""
    await lot._round()
    assert lot._over, "whoever unmounts it"


async def going(scene: Scene, lot: Any, code: int) -> None:
    scene.code = code
    for count in (1, 2):
        scene.job = replace_job(counted_at_ms=count)
        await lot._round()
    assert scene.did("unmount")
    scene.status = ""
    await lot._round()


@pytest.mark.parametrize(
    "code, gone",
    [(0, True), (-901, True), (-1010, False)],
    ids=["done", "not-known", "refused"],
)
async def test_a_lot_that_is_not_listed_has_gone_when_it_was_or_may_be_unmounted(
    scene: Scene, lot: Any, code: int, gone: bool
) -> None:
    await going(scene, lot, code)
    assert lot._over == gone
    assert [scene.book[key].drops for key in OURS] == [int(gone)] * 2
    if not gone:
        scene.status = "DRAINING"
        await lot._round()
        assert not lot._over, "it is listed again"


async def test_a_lot_that_was_never_unmounted_is_given_up_when_it_is_not_listed_for_long(
    scene: Scene, lot: Any
) -> None:
    scene.status = ""
    await lot._round()
    scene.clock.jump(2 * APPEAR_S)
    await lot._round()
    assert not lot._over
    scene.status = "DRAINING"
    await lot._round()
    scene.status = ""
    await lot._round()
    scene.clock.jump(1)
    await lot._round()
    assert not lot._over, "it was listed meanwhile"
    scene.clock.jump(2 * APPEAR_S)
    await lot._round()
    assert lot._over
    assert [scene.book[key].drops for key in OURS] == [0, 0]


async def test_a_refused_unmount_is_put_right_by_the_next_look(scene: Scene, lot: Any) -> None:
    scene.status = "GRACEFULLY_UNMOUNTING"
    await lot._round()
    scene.status = "OK"
    await lot._round()
    scene.status = ""
    await lot._round()
    assert not lot._over, "it was taken back meanwhile"


async def test_another_client_in_the_place_of_its_own_means_that_it_is_lost(
    scene: Scene, lot: Any
) -> None:
    await lot._round()
    scene.token = "another"
    with pytest.raises(LostError):
        await lot._round()


# --- moves and drain jobs -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "status, again",
    [
        ("PENDING", False),
        ("PROCESSING", False),
        ("SUCCESS", True),
        ("FAILED", True),
        ("UNKNOWN", True),
    ],
)
async def test_a_key_has_one_move_at_a_time(scene: Scene, status: str, again: bool) -> None:
    worker: Any = scene
    moves = Moves(scene.clock)
    assert await moves.ask(worker, "a", "lot", "host0")
    scene.clock.jump(3600)
    scene.task = status
    assert await moves.ask(worker, "a", "lot", "host0") == again
    assert not await moves.ask(worker, "a", "lot", "host0"), "it is not due again at once"


async def test_what_the_master_refused_to_move_is_asked_for_again(scene: Scene) -> None:
    worker: Any = scene
    moves = Moves(scene.clock)
    scene.moved = -1010
    assert not await moves.ask(worker, "a", "lot", "host0")
    scene.clock.jump(3600)
    scene.moved = 0
    assert await moves.ask(worker, "a", "lot", "host0")
    assert not scene.did("task"), "there was none"


def test_a_drain_job_that_a_master_does_not_know_is_told_from_one_that_it_refuses(
    imitated: FakeMooncake,
) -> None:
    drains = Drains(imitated.admin, 60.0)
    assert drains.can()
    assert drains.look("9-0") is None
    (name, *_) = imitated.segments
    job = drains.begin(name)
    found = drains.look(job)
    assert found is not None
    with pytest.raises(TransientError, match="it answered 409"):
        drains.begin(name)
