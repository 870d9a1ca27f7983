"""The life of a few replicas in a tier, and what must be true of them after any fault.

`Life` drives a real tier through a fixed story and notes, as facts, what it was told: a replica
that was reported stored or seen complete, one that was reported gone or seen absent, a term that
was served.  `judge` looks at a medium with a fresh engine and holds it against the facts.  The rule
is always the same: what was said is so, and everything else is whole or not there.
"""

import hashlib
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from tests.support.virtual_time import SeededEntropy
from weightctl.controller.clock import SystemClock
from weightctl.controller.core.observation import Member, Members, MemberState, TierObservation
from weightctl.controller.errors import ConfigError
from weightctl.controller.ports import (
    Done,
    DropItem,
    Fence,
    NoOp,
    Outcome,
    RangedReader,
    StoreItem,
    Tier,
    TierContext,
)

HOLDER = "store-a"
GROUP = "weight:" + "5a" * 32
LONG_GROUP = "weight:" + "long/" * 60
ATTEMPTS_MAX = 4
"""After the last fault everything must be as wanted within so many rounds."""


def _content(size_bytes: int, seed: int) -> bytes:
    return hashlib.shake_128(f"{seed}".encode()).digest(size_bytes)


CONTENTS = tuple(_content(size, seed) for seed, size in enumerate((9000, 100, 0, 5000, 70_000)))
KEYS = ("a", "b", "c", "k/" * 200, "e")
GROUPS = (GROUP, GROUP, GROUP, LONG_GROUP, GROUP)
MEMBERS = tuple(
    Member(
        group_id=group,
        key=key,
        size_bytes=len(content),
        sha256=hashlib.sha256(content).digest(),
    )
    for group, key, content in zip(GROUPS, KEYS, CONTENTS, strict=True)
)
WANTED = frozenset({0, 2, 4})
"""What is there at the end of the story."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that a tier said of the member `index`; `leaving` and `coming` take it back."""

    what: str
    index: int


Note = Callable[[Fact], Awaitable[None]]
Lift = Callable[[], Awaitable[bool]]
"""Ends the fault if it was met; whether it was."""


async def _no_fault() -> bool:
    return False


class Reopened(Protocol):
    """A medium as a fresh process finds it; blocking."""

    def states(self, group_id: str) -> dict[str, int]:
        """State of each member of that group, by key."""

    def content(self, member: Member) -> bytes:
        """All bytes of a complete replica, read from the medium."""

    def refuses(self, term: int) -> bool:
        """Whether a term is over."""

    def close(self) -> None:
        """Let it go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of tier on a folder that holds its medium and its state directory."""

    name: str
    build: Callable[[Path, TierContext], Tier]
    reopen: Callable[[Path, TierContext], Reopened]

    def tier(self, folder: Path, seed: int) -> Tier:
        return self.build(folder, context(folder, seed))


def context(folder: Path, seed: int) -> TierContext:
    """As the host gives it; the state directory lies on the medium, too."""
    return TierContext(
        clock=SystemClock(),
        entropy=SeededEntropy(seed),
        state_dir=str(folder / "state"),
        holder=HOLDER,
    )


def table(group_id: str) -> Members:
    """The members of one group."""
    chosen = sorted((m for m in MEMBERS if m.group_id == group_id), key=lambda m: m.key)
    return Members(
        group_id=group_id,
        keys=[member.key for member in chosen],
        sizes_bytes=array("Q", [member.size_bytes for member in chosen]),
        sha256=b"".join(member.sha256 for member in chosen),
        data_types=bytes(member.data_type for member in chosen),
    )


class _Bytes:
    """A source in memory."""

    instance_id = "source"

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.size_bytes = len(content)

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        buffer[:] = self._content[offset : offset + len(buffer)]

    def fileno(self) -> int | None:
        return None


@asynccontextmanager
async def _opened(content: bytes) -> AsyncIterator[RangedReader]:
    yield _Bytes(content)


def item(index: int) -> StoreItem:
    """Store that member."""
    return StoreItem(member=MEMBERS[index], open_source=partial(_opened, CONTENTS[index]))


class Life:
    """What processes, one after the other, do with a tier; the term grows with each.

    lift: asked at the end of each process; when a fault was met and has ended, the very same
    process has to bring everything to what is wanted.
    """

    def __init__(
        self, kind: Kind, folder: Path, note: Note, *, lift: Lift = _no_fault, seed: int = 0
    ) -> None:
        self.kind, self._folder, self._note, self._lift = kind, folder, note, lift
        self._seed = seed
        self.facts: list[Fact] = []
        self._term = 0
        self._known: dict[int, str] = {}
        self.problems: list[str] = []
        """What was refused or failed, for people."""

    async def run(self) -> None:
        """The whole story, whatever fails on the way; two processes after each other."""
        async with self.process() as tier:
            if tier is not None:
                await self._store(tier, 0, 1, 2)
                await self._verify(tier, 0, 1, 2)
                await self._remove(tier, 1)
                await self._store(tier, 3)
                await self._remove(tier, 0, hide=True)
                await self._store(tier, 0)
                await self._recover(tier)
        await self.again()

    async def again(self) -> None:
        """What the second process does."""
        async with self.process() as tier:
            if tier is not None:
                await self._store(tier, 4)
                await self._remove(tier, 3)
                await self._look(tier)
                await self._recover(tier)

    async def _recover(self, tier: Tier) -> None:
        if await self._lift():
            await self._settle(tier)

    async def converge(self) -> None:
        """Without faults: everything becomes as wanted, in one fresh process and a few rounds."""
        async with self.process() as tier:
            assert tier is not None, self.problems
            await self._settle(tier)

    async def _settle(self, tier: Tier) -> None:
        seen: dict[int, int] = {}
        unwanted = sorted(set(range(len(MEMBERS))) - WANTED)
        for _ in range(ATTEMPTS_MAX):
            await self._store(tier, *sorted(WANTED))
            await self._verify(tier, *sorted(WANTED))
            await self._remove(tier, *unwanted)
            seen = await self._look(tier)
            complete = {index for index, state in seen.items() if state == MemberState.COMPLETE}
            if complete == WANTED and MemberState.UNKNOWN not in seen.values():
                break
        else:
            raise AssertionError(f"not converged: {seen} {self.problems}")
        capacity = await tier.capacity()
        assert capacity.used_bytes + capacity.free_bytes <= capacity.total_bytes

    @asynccontextmanager
    async def process(self) -> AsyncIterator[Tier | None]:
        """A fresh tier; None where it cannot be entered now."""
        self._seed += 1
        self._term += 1
        tier = self.kind.tier(self._folder, self._seed)
        try:
            await tier.__aenter__()
        except ConfigError as error:
            self.problems.append(f"enter: {error}")
            yield None
            return
        try:
            await self._look(tier)
            yield tier
        finally:
            await tier.__aexit__(None, None, None)

    # --- steps ---

    def _fence(self) -> Fence:
        return Fence(holder=HOLDER, term=self._term, operation_id=1, generation=1)

    async def _say(self, what: str, index: int) -> None:
        if self._known.get(index) != what or what == "term":
            self._known[index] = what
            await self._noted(Fact(what, index))

    async def _noted(self, fact: Fact) -> None:
        self.facts.append(fact)
        await self._note(fact)

    async def _store(self, tier: Tier, *indexes: int) -> None:
        for index in indexes:
            if self._known.get(index) != "there":
                await self._say("coming", index)
        outcomes = await tier.store([item(index) for index in indexes], self._fence())
        await self._hear("store", indexes, outcomes, "there")
        await self._look(tier)

    async def _verify(self, tier: Tier, *indexes: int) -> None:
        outcomes = await tier.verify([MEMBERS[index] for index in indexes])
        for index, outcome in zip(indexes, outcomes, strict=True):
            if isinstance(outcome, Done):
                await self._say("there", index)
            else:
                self.problems.append(f"verify {index}: {outcome}")

    async def _remove(self, tier: Tier, *indexes: int, hide: bool = False) -> None:
        for index in indexes:
            observation, at = await self._observed(tier, index)
            if observation.states[at] == MemberState.COMPLETE:
                replica = DropItem(
                    member=MEMBERS[index], instance_id=observation.details[at].instance_id
                )
                await self._say("leaving", index)
                call = tier.quarantine if hide else tier.drop
                await self._hear("drop", [index], await call([replica], self._fence()), "gone")
        await self._look(tier)

    async def _hear(
        self, verb: str, indexes: Sequence[int], outcomes: Sequence[Outcome], fact: str
    ) -> None:
        for index, outcome in zip(indexes, outcomes, strict=True):
            if isinstance(outcome, Done | NoOp):
                await self._say(fact, index)
                await self._noted(Fact("term", self._term))
            else:
                self.problems.append(f"{verb} {index}: {outcome}")

    async def _observed(self, tier: Tier, index: int) -> tuple[TierObservation, int]:
        members = table(MEMBERS[index].group_id)
        at = list(members.keys).index(MEMBERS[index].key)
        return await tier.observe(members, detail=[at]), at

    async def _look(self, tier: Tier) -> dict[int, int]:
        """Observe everything; what is seen there or absent is a promise like any other."""
        seen: dict[int, int] = {}
        for group_id in dict.fromkeys(GROUPS):
            members = table(group_id)
            observation = await tier.observe(members)
            states = dict(zip(members.keys, observation.states, strict=True))
            if observation.problem:
                self.problems.append(f"observe: {observation.problem}")
            for index, member in enumerate(MEMBERS):
                if member.group_id == group_id:
                    seen[index] = states[member.key]
        for index, state in seen.items():
            if state == MemberState.COMPLETE:
                await self._say("there", index)
            elif state == MemberState.ABSENT:
                assert self._known.get(index) != "there", f"{index} was there and is gone"
                await self._say("gone", index)
        return seen


def judge(kind: Kind, folder: Path, facts: Iterable[object], *, seed: int = 99) -> None:
    """Look at a medium with a fresh engine, and hold it against what was said of it."""
    known: dict[int, str] = {}
    term = 0
    for fact in facts:
        assert isinstance(fact, Fact)
        if fact.what == "term":
            term = max(term, fact.index)
        else:
            known[fact.index] = fact.what
    reopened = kind.reopen(folder, context(folder, seed))
    try:
        for index, member in enumerate(MEMBERS):
            _judge_member(reopened, index, member, known.get(index, ""))
        assert not term or reopened.refuses(term - 1), f"term {term} is forgotten"
    finally:
        reopened.close()


def _judge_member(reopened: Reopened, index: int, member: Member, known: str) -> None:
    state = reopened.states(member.group_id)[member.key]
    assert state in {MemberState.COMPLETE, MemberState.ABSENT}, f"{index} is {state!r}"
    if state == MemberState.COMPLETE:
        assert known != "gone", f"{index} was gone and is back"
        assert reopened.content(member) == CONTENTS[index], f"{index} has other bytes"
    else:
        assert known != "there", f"{index} was there and is lost"
