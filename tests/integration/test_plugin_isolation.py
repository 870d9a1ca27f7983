"""A plugin that is broken, slow or hostile is named and isolated; the others work on.

Each kind stands between a hot tier and a sound cold one, behind the border that every plugin has,
under the real store and the real loop.
"""

import asyncio
import itertools
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from pathlib import Path
from typing import Any, Self

import anyio
import pytest

from tests.support.loop_rig import IDENTITY, contents, members_of, reference_of
from weightctl.adapters.conformance.reference import ReferenceMedium, ReferenceTier
from weightctl.adapters.conformance.suite.haste import HastyClock
from weightctl.adapters.conformance.suite.life import SETTINGS
from weightctl.adapters.conformance.suite.material import read_all, source_of
from weightctl.controller.api import requests, surveys
from weightctl.controller.api.app import StoreRecords
from weightctl.controller.api.planning import Planning, tier_list
from weightctl.controller.clock import SystemEntropy
from weightctl.controller.core.observation import Member, TierObservation
from weightctl.controller.core.plan import Plan, Reason, Verdict, Wait
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import Availability, Operation, Residency
from weightctl.controller.core.tiers import TierCapacity
from weightctl.controller.errors import (
    InvariantViolationError,
    ReconcileError,
    TerminalError,
    ThrottledError,
    TransientError,
)
from weightctl.controller.ports import (
    Busy,
    Conflict,
    Corrupt,
    Done,
    DropItem,
    Fence,
    InventoryItem,
    NoCapacity,
    Outcome,
    Permanent,
    RangedReader,
    Retry,
    StoreItem,
    Tier,
)
from weightctl.controller.runtime import border, guest, turns
from weightctl.controller.runtime.border import BorderedTier
from weightctl.controller.runtime.conditions import ConditionBoard, ConditionType
from weightctl.controller.runtime.controller import Controller
from weightctl.controller.store.store import WeightMetadataStore

HUGE = "x" * 5_000_000
PATIENCE_S = 120.0


class Endless(Mapping[str, Sequence[InventoryItem]]):
    """An inventory without an end."""

    def __getitem__(self, key: str) -> Sequence[InventoryItem]:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return map(str, itertools.count())

    def __len__(self) -> int:
        return 1

    def items(self) -> Any:
        return ((str(number), ()) for number in itertools.count())


async def never_ends() -> Any:
    """Ignores every cancellation."""
    while True:
        with suppress(asyncio.CancelledError):
            await anyio.sleep_forever()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)


def raising(error: BaseException) -> Callable[..., Any]:
    async def call(*_: object, **__: object) -> Any:
        raise error

    return call


def answering(answer: object) -> Callable[..., Any]:
    async def call(*_: object, **__: object) -> Any:
        return answer

    return call


async def hang(*_: object, **__: object) -> Any:
    await anyio.sleep_forever()


async def ignore(*_: object, **__: object) -> Any:
    await never_ends()


async def shielded(*_: object, **__: object) -> Any:
    with anyio.CancelScope(shield=True):
        await anyio.sleep_forever()


ALL = ("observe", "store", "drop", "quarantine", "verify", "inventory", "capacity")


KINDS: dict[str, dict[str, Callable[..., Any]]] = {
    "it raises what it likes": dict.fromkeys(ALL, raising(ValueError("of its own"))),
    "it tries to exit": dict.fromkeys(ALL, raising(SystemExit(3))),
    "it raises our own alarm": dict.fromkeys(ALL, raising(InvariantViolationError("not ours"))),
    "it raises what Ctrl-C raises": dict.fromkeys(ALL, raising(KeyboardInterrupt())),
    "it raises the end of a generator": dict.fromkeys(ALL, raising(GeneratorExit())),
    "it cancels itself": dict.fromkeys(ALL, raising(asyncio.CancelledError())),
    "it answers nothing": dict.fromkeys(ALL, answering(None)),
    "it answers words": dict.fromkeys(ALL, answering("done")),
    "it answers too much": {
        "observe": answering(TierObservation(states=b"\x03" * 9, epoch="e")),
        "store": answering([Done()] * 1000),
        "verify": answering([Done()] * 1000),
    },
    "it answers no outcomes": {"store": answering([object()] * 4), "verify": answering([7] * 4)},
    "it answers endlessly": {"inventory": answering(Endless())},
    "it answers huge texts": {
        "observe": answering(TierObservation(states=bytes(4), epoch="", problem=HUGE)),
        "store": raising(TransientError(HUGE, HUGE, HUGE)),
        "capacity": raising(TerminalError(HUGE)),
    },
    "it answers a huge epoch": {
        "observe": answering(TierObservation(states=b"\x03" * 4, epoch=HUGE))
    },
    "it answers an epoch that cannot be written down": {
        "observe": answering(TierObservation(states=b"\x03" * 4, epoch="\ud800"))
    },
    "it answers ids that cannot be written down": {
        "store": answering([Done(instance_id="\ud800")] * 4),
        "verify": answering([Corrupt(expected=b"", got=b"", instance_id="a\0")] * 4),
        "inventory": answering({5: (), (1,): ()}),
    },
    "it answers numbers that are none": {
        "store": raising(ThrottledError(float("nan"), "a", "b", "c")),
        "verify": answering([Retry(after_s=float("nan"))] * 4),
        "drop": answering([Busy(until_ms=10**400)] * 4),
        "capacity": answering(
            TierCapacity(used_bytes=10**400, free_bytes=10**400, total_bytes=10**400)
        ),
    },
    "it answers no coroutine": dict.fromkeys(ALL, lambda *_, **__: 5),
    "it hangs": dict.fromkeys(ALL, hang),
    "it ignores cancellation": {"observe": ignore, "store": ignore, "capacity": ignore},
    "it hides from cancellation": {"observe": shielded, "store": shielded},
}


def broken(name: str, calls: Mapping[str, Callable[..., Any]]) -> Tier:
    """A tier whose methods are those."""
    made = ReferenceTier(name, ReferenceMedium())
    for method, call in calls.items():
        setattr(made, method, call)
    return made


class Loop:
    """Three tiers and the loop over them."""

    def __init__(self, store: WeightMetadataStore, tiers: Sequence[Tier], loop: Controller) -> None:
        self.store = store
        self.hot, self.bad, self.cold = tiers
        self.loop = loop
        self.data: dict[str, bytes] = {}

    async def publish(self) -> None:
        self.data = contents(IDENTITY, 3, 1000)
        reference = reference_of(IDENTITY, self.data)
        await self.store.begin_import(
            identity=IDENTITY,
            expected_payload_count=reference.payload_count,
            expected_logical_bytes=reference.logical_bytes,
        )
        await self.store.directory.register(IDENTITY, self.members)
        fence = Fence(holder=self.store.holder, term=self.store.term, operation_id=0, generation=1)
        batch = [
            StoreItem(member=member, open_source=source_of(self.data[member.key]))
            for member in self.members
        ]
        for tier in (self.hot, self.cold):
            assert all(isinstance(one, Done) for one in await tier.store(batch, fence))
        await self.store.commit_import(
            identity=IDENTITY, expected_metadata_generation=1, manifest=reference
        )

    @property
    def planning(self) -> Planning:
        return Planning(
            records=StoreRecords(self.store),
            tiers=(self.hot, self.bad, self.cold),
            policy=Policy(settle_s=0.0),
            clock=HastyClock(),
            running=self.loop,
        )

    @property
    def members(self) -> list[Member]:
        return members_of(IDENTITY, self.data)

    async def empties(self, tier: Tier) -> None:
        """Everything in that tier goes, by somebody's hand."""
        fence = Fence(holder="somebody", term=1, operation_id=0, generation=1)
        for name, items in (await tier.inventory()).items():
            members = {member.key: member for member in self.members if member.group_id == name}
            batch = [
                DropItem(member=members[item.key], instance_id=item.instance_id) for item in items
            ]
            assert all(isinstance(one, Done) for one in await tier.drop(batch, fence))

    async def starts(self, residency: Residency) -> None:
        record = (await self.store.get(identity=IDENTITY)).metadata
        await self.store.start_residency_operation(
            identity=IDENTITY,
            expected_metadata_generation=record.metadata_generation,
            target_residency=residency,
            member_count=4,
        )

    async def moves_to(self, residency: Residency) -> None:
        await self.starts(residency)
        with anyio.fail_after(PATIENCE_S):
            await self.loop.wait_converged(IDENTITY)
        record = (await self.store.get(identity=IDENTITY)).metadata
        assert record.availability is Availability.READY
        assert (record.residency, record.operation) == (residency, Operation.NONE)


@asynccontextmanager
async def running(folder: Path, bad: Tier) -> AsyncIterator[Loop]:
    clock, entropy = HastyClock(), SystemEntropy()
    inner = (ReferenceTier("hot", ReferenceMedium(), hot=True), bad)
    cold = ReferenceTier("cold", ReferenceMedium())
    policy = Policy(settle_s=0.0)
    async with AsyncExitStack() as stack:
        stack.enter_context(anyio.open_signal_receiver(signal.SIGINT))  # as `weightctl run` does
        store = await stack.enter_async_context(
            WeightMetadataStore.open(folder, clock=clock, entropy=entropy)
        )
        tiers = [
            await stack.enter_async_context(BorderedTier(tier, tier.profile, clock))
            for tier in (*inner, cold)
        ]
        loop = await stack.enter_async_context(
            Controller(store, tiers, clock=clock, entropy=entropy, policy=policy, settings=SETTINGS)
        )
        made = Loop(store, tiers, loop)
        await made.publish()
        yield made


@pytest.mark.parametrize("kind", KINDS)
async def test_the_others_work_on_and_it_is_named(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "GRACE_S", 0.1)
    monkeypatch.setattr(guest, "LOOK_LIMIT_S", 0.5)
    async with running(tmp_path, broken("bad", KINDS[kind])) as found:
        await found.moves_to(Residency.COLD)
        for member in found.members:
            assert await read_all(found.cold, member) == found.data[member.key]
        await found.moves_to(Residency.HOT)
        with anyio.fail_after(PATIENCE_S):
            while not (health := found.loop.health()).ready:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        if "observe" in KINDS[kind]:
            assert health.tiers["bad"]
        assert not misdeed(health.tiers["hot"])
        assert not misdeed(health.tiers["cold"])
        assert len(str(health)) < 20_000


def misdeed(problem: str) -> str:
    """What a tier is told to have done, apart from how long that took: the machine may be slow."""
    slow = ("it held up the event loop", "no answer within", "no end, and it cannot")
    return "" if any(word in problem for word in slow) else problem


async def test_what_does_not_end_is_left_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "GRACE_S", 0.05)
    tier = bordered(broken("bad", {"capacity": ignore}))
    async with tier:
        with anyio.move_on_after(0.05) as scope:
            await tier.capacity()
        assert scope.cancelled_caught
        assert "although it was cancelled" in tier.complaint
        await anyio.lowlevel.checkpoint()  # nothing of the cancellation is left in this task


def bordered(tier: Tier) -> BorderedTier:
    return BorderedTier(tier, tier.profile, HastyClock())


@pytest.mark.parametrize("call", [hang, ignore, shielded, raising(SystemExit(1))])
@pytest.mark.parametrize("method", ["__aenter__", "__aexit__"])
async def test_entering_and_leaving_have_an_end(
    method: str, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "GRACE_S", 0.05)
    monkeypatch.setattr(guest, "LIMIT_S", 0.3)
    monkeypatch.setattr(border, "ENTER_S", 0.1)
    monkeypatch.setattr(border, "LEAVE_S", 0.1)

    class Hanging(ReferenceTier):
        pass

    setattr(Hanging, method, call)
    tier = bordered(Hanging("bad", ReferenceMedium()))
    if method == "__aenter__":
        with pytest.raises(ReconcileError):
            await tier.__aenter__()
    else:
        async with tier:
            pass
    assert tier.complaint


async def test_what_it_runs_in_the_background_ends_only_itself() -> None:
    class Dying(ReferenceTier):
        async def __aenter__(self) -> Self:
            self.group = anyio.create_task_group()
            await self.group.__aenter__()
            self.group.start_soon(self.die)
            return self

        async def die(self) -> None:
            raise ValueError("in the background")

        async def __aexit__(self, *exc_info: object) -> None:
            await self.group.__aexit__(None, None, None)

    tier = bordered(Dying("bad", ReferenceMedium()))
    async with tier:
        assert tier._host is not None
        await asyncio.wait({tier._host})
        with pytest.raises(TransientError, match="in the background"):
            await tier.capacity()
    assert tier.complaint


async def test_who_holds_up_the_loop_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest, "HELD_S", 0.0)

    async def compute(*_: object) -> TierCapacity:
        end = time.process_time() + 0.01
        while time.process_time() < end:
            pass
        return TierCapacity(used_bytes=0, free_bytes=1, total_bytes=1)

    tier = bordered(broken("bad", {"capacity": compute}))
    async with tier:
        assert (await tier_list([tier]))["items"][0]["problem"].startswith("capacity: it held up")


def no_descriptor() -> Any:
    return 1 << 30


def of_a_pipe() -> Any:
    """Reading it would never end."""
    return PIPE[0]


PIPE = os.pipe()


def raising_at_once(error: BaseException) -> Callable[[], Any]:
    def call() -> Any:
        raise error

    return call


@pytest.mark.parametrize(
    "fileno",
    [
        raising_at_once(ValueError("of its own")),
        raising_at_once(SystemExit(3)),
        raising_at_once(GeneratorExit()),
        lambda: "seven",
        no_descriptor,
        of_a_pipe,
    ],
)
async def test_a_reader_without_a_proper_descriptor_is_read_all_the_same(
    fileno: Callable[[], Any],
) -> None:
    class Strange(ReferenceTier):
        @asynccontextmanager
        async def open(self, member: Member) -> AsyncIterator[RangedReader]:
            async with super().open(member) as reader:
                setattr(reader, "fileno", fileno)  # noqa: B010 - whatever a plugin does
                yield reader

    data = contents(IDENTITY, 1, 1000)
    member = members_of(IDENTITY, data)[0]
    tier = bordered(Strange("bad", ReferenceMedium()))
    fence = Fence(holder="somebody", term=1, operation_id=0, generation=1)
    item = StoreItem(member=member, open_source=source_of(data[member.key]))
    async with tier:
        assert isinstance((await tier.store([item], fence))[0], Done)
        async with tier.open(member) as reader:
            assert reader.fileno() is None
        assert await read_all(tier, member) == data[member.key]
    assert tier.complaint.startswith("fileno: ")


CLAIMS = answering(TierObservation(states=b"\x03" * 4, epoch="of another"))
"""It holds everything, it says."""
UNREADABLE: dict[str, Callable[..., Any]] = {
    "it holds something else": answering([Conflict(detail="something else is there")] * 4),
    "it is busy without an end": answering([Busy()] * 4),
    "it fails without an end": answering([Retry()] * 4),
    "it will not": answering([Permanent(detail="it will not")] * 4),
    "it gives no answer": raising(TransientError("no answer")),
    "it does not say what it read": answering([Done()] * 4),
    "it read something wrong": answering([Corrupt(expected=bytes(32), got=bytes(32))] * 4),
}


class Unreadable(AbstractAsyncContextManager[RangedReader]):
    """A copy that cannot be opened."""

    def __init__(self, *_: object) -> None:
        pass

    async def __aenter__(self) -> RangedReader:
        raise TransientError("it cannot be read")

    async def __aexit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("kind", UNREADABLE)
async def test_a_tier_that_cannot_show_its_copy_does_not_hold_up_who_can(
    kind: str, tmp_path: Path
) -> None:
    """It is the first that is asked; of the sound copy not a byte is lost."""
    calls = {"observe": CLAIMS, "verify": UNREADABLE[kind], "open": Unreadable}
    async with running(tmp_path, broken("bad", calls)) as found:
        await found.moves_to(Residency.COLD)
        for member in found.members:
            assert await read_all(found.cold, member) == found.data[member.key]
        await found.moves_to(Residency.HOT)
        for member in found.members:
            assert await read_all(found.hot, member) == found.data[member.key]


@pytest.mark.parametrize(
    "refusal",
    [Retry(), Permanent(detail="it takes none"), NoCapacity(needed_bytes=1, free_bytes=0)],
)
async def test_a_tier_that_takes_nothing_does_not_hold_up_who_does(
    refusal: Outcome, tmp_path: Path
) -> None:
    async with running(tmp_path, broken("bad", {"store": answering([refusal] * 4)})) as found:
        await found.empties(found.cold)
        await found.moves_to(Residency.COLD)
        for member in found.members:
            assert await read_all(found.cold, member) == found.data[member.key]


async def test_what_a_pass_met_is_explained_with_its_tier_and_member(tmp_path: Path) -> None:
    async with running(tmp_path, broken("bad", {})) as found:
        refuses = answering([Permanent(detail="it is bolted on")] * 4)
        found.hot._inner.drop = refuses  # type: ignore[attr-defined]
        await found.starts(Residency.COLD)
        with anyio.fail_after(PATIENCE_S):
            while not (failing := found.planning.failing(IDENTITY)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert "(hot): Permanent: it is bolted on" in failing.message
        told = await surveys.explain(found.planning, requests.One(identity=IDENTITY))
        (hold,) = (one for one in told["holds"] if one["reason"] == "Permanent")
        assert hold["what"] == f"the last pass failed: {failing.message}"


BLOCKED = Plan(
    verdict=Verdict.BLOCKED,
    waits=(Wait(reason=Reason.IMPORT_RUNNING, what="the writer has been heard of"),),
    bytes_by_pair={},
    needed_bytes={},
    free_bytes={},
)


async def test_what_a_pass_waited_for_is_not_told_of_one_that_failed() -> None:
    board = ConditionBoard(HastyClock(), stuck_after_s=1.0)
    board.planned(IDENTITY, BLOCKED, 1)
    board.failed(IDENTITY, "InternalError", "it broke", 2)
    assert [(one.type, one.message) for one in board.of(IDENTITY) if one.status] == [
        (ConditionType.FAILING, "it broke")
    ]
    assert not any(BLOCKED.waits[0].what in one.message for one in board.of(IDENTITY))


@pytest.mark.parametrize("sound", [True, False])
async def test_only_a_copy_that_was_read_back_lets_another_one_go(
    sound: bool, tmp_path: Path
) -> None:
    """Where nobody else has one, a further copy is made before memory is let go."""
    calls = {"observe": CLAIMS, "verify": UNREADABLE["it holds something else"]}
    async with running(tmp_path, broken("bad", calls)) as found:
        if not sound:
            await found.empties(found.cold)
        await found.moves_to(Residency.COLD)
        for member in found.members:
            assert await read_all(found.cold, member) == found.data[member.key]
