"""A tier that misbehaves on request: wraps any tier.  Layer: conformance.

Each call asks a script whether something goes wrong this time.  What goes wrong lies on the way to
the tier, on the way back, in the answer, or in the bytes that flow; the wrapped tier itself keeps
its contract throughout.  Without a fault the wrapper changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

import anyio

from weightctl.adapters.conformance.readers import PassingReader, hurt
from weightctl.adapters.conformance.views import PastViews
from weightctl.controller.core.observation import (
    Member,
    Members,
    MemberState,
    TierObservation,
    unknown_observation,
)
from weightctl.controller.core.tiers import TierCapacity
from weightctl.controller.errors import (
    BusyError,
    CapacityError,
    FencedError,
    IntegrityError,
    TerminalError,
    ThrottledError,
    TransientError,
    UnknownOutcomeError,
)
from weightctl.controller.ports import (
    Busy,
    Clock,
    Done,
    Fence,
    InventoryItem,
    Limiter,
    Outcome,
    RangedReader,
    StoreItem,
    Tier,
)
from weightctl.controller.runtime.forwarding import ForwardingTier

T = TypeVar("T")
Item = TypeVar("Item")


class Call(StrEnum):
    """What can be asked of a tier; `read` is one piece of an opened replica."""

    OBSERVE = "observe"
    STORE = "store"
    DROP = "drop"
    QUARANTINE = "quarantine"
    OPEN = "open"
    READ = "read"
    VERIFY = "verify"
    INVENTORY = "inventory"
    CAPACITY = "capacity"


class Kind(StrEnum):
    """What goes wrong; `amount` of the fault means what stands in brackets."""

    # on the way
    LOSE_REQUEST = "lose_request"  # it never arrives, no answer comes
    LOSE_ANSWER = "lose_answer"  # it is carried out, no answer comes
    DELAY = "delay"  # [seconds] it arrives late, the answer comes then
    LATE = "late"  # [seconds] it arrives late, whoever asked hears nothing
    DOUBLE = "double"  # [seconds] it is carried out once more later
    ERROR = "error"  # [number of ERRORS] it is not carried out
    FAIL_AFTER = "fail_after"  # [number of ERRORS] it is carried out, then an error is told
    # the answer to a batch
    PART = "part"  # only the first half is carried out and answered
    CUT = "cut"  # [items] carried out wholly, the last answers are missing
    SURPLUS = "surplus"  # one answer too many
    SHUFFLE = "shuffle"  # the answers stand in the wrong order
    FALSE_DONE = "false_done"  # nothing is carried out, success is told
    BUSY = "busy"  # [seconds] refused until then
    # the answer to a look
    UNKNOWN = "unknown"
    STALE = "stale"  # [versions] as it was so many changes ago
    EMPTY = "empty"  # everything absent, the epoch right
    WRONG_EPOCH = "wrong_epoch"
    FOREIGN = "foreign"  # what another tier holds
    # the bytes
    NO_SPACE = "no_space"  # [bytes] the medium is full after so many
    FLIP = "flip"  # a bit turns on the way
    TORN = "torn"  # what was stored loses its tail at rest, unnoticed
    ROT = "rot"  # a bit of what was stored turns at rest, unnoticed
    OLD = "old"  # success is told, what lies there are other bytes, as of an older version


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong in one call."""

    kind: str
    amount: float = 0.0


ERRORS: tuple[Callable[[], Exception], ...] = (
    partial(TransientError, "injected"),
    partial(ThrottledError, 1.0, "injected"),
    partial(BusyError, None, "injected"),
    partial(CapacityError, 1, 0, "injected"),
    partial(IntegrityError, "injected"),
    partial(TerminalError, "injected"),
    partial(FencedError, "injected"),
    partial(UnknownOutcomeError, "injected"),
    partial(OSError, 5, "injected"),
    partial(RuntimeError, "injected"),
)
"""Every class of error that may arrive, translated or not."""

NextFault = Callable[[str, Call], Fault | None]
"""Asked once per call with the tier's name; None: this one goes well."""


def _error(fault: Fault) -> Exception:
    return ERRORS[int(fault.amount) % len(ERRORS)]()


class FaultyTier(ForwardingTier):
    """`ports.Tier` over another tier.

    spawn: runs a coroutine on, whatever becomes of the caller (what is under way in a network).
    detached: every call is carried out so, as by a server that does not notice a client's end.
    foreign: the tier that answers in place of this one.  damage: hurts a stored replica at rest.
    """

    def __init__(
        self,
        inner: Tier,
        next_fault: NextFault,
        *,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        detached: bool = False,
        foreign: Tier | None = None,
        damage: Callable[[Member, str], None] | None = None,
    ) -> None:
        super().__init__(inner)
        self._next_fault = next_fault
        self._clock = clock
        self._spawn = spawn
        self._detached = detached
        self._foreign = foreign
        self._damage = damage
        self._views = PastViews()

    def _fault(self, call: Call) -> Fault | None:
        return self._next_fault(self.profile.name, call)

    # --- looking ----------------------------------------------------------------------------------

    async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
        """As the port, with what goes wrong in a look."""
        fault = self._fault(Call.OBSERVE)
        if fault is not None and fault.kind == Kind.UNKNOWN:
            return unknown_observation(len(members), "injected")
        seen = await self._way(fault, partial(self._look, members, detail))
        match fault:
            case Fault(kind=Kind.STALE, amount=depth):
                return self._views.answer(members, detail, seen, int(depth))
            case Fault(kind=Kind.EMPTY):
                states = bytes([MemberState.ABSENT]) * len(members)
                return TierObservation(states=states, epoch=seen.epoch)
            case Fault(kind=Kind.WRONG_EPOCH):
                return TierObservation(
                    states=seen.states, epoch=seen.epoch + "?", details=seen.details
                )
            case Fault(kind=Kind.FOREIGN) if self._foreign is not None:
                other = await self._foreign.observe(members, detail=detail)
                epoch = seen.epoch if fault.amount else other.epoch
                return TierObservation(states=other.states, epoch=epoch, details=other.details)
            case Fault(kind=Kind.CUT | Kind.PART):
                return TierObservation(
                    states=seen.states[:-1], epoch=seen.epoch, details=seen.details
                )
            case Fault(kind=Kind.SURPLUS):
                return TierObservation(
                    states=seen.states + seen.states[-1:], epoch=seen.epoch, details=seen.details
                )
        return seen

    async def _look(self, members: Members, detail: Sequence[int]) -> TierObservation:
        seen = await self._inner.observe(members, detail=range(len(members)))
        self._views.note(members, seen)
        wanted = {index: seen.details[index] for index in detail if index in seen.details}
        return TierObservation(
            states=seen.states, epoch=seen.epoch, details=wanted, problem=seen.problem
        )

    async def inventory(self, group_id: str | None = None) -> Mapping[str, Sequence[InventoryItem]]:
        """As the port; may be EMPTY."""
        fault = self._fault(Call.INVENTORY)
        listed = await self._way(fault, partial(self._inner.inventory, group_id))
        return {} if fault is not None and fault.kind == Kind.EMPTY else listed

    async def capacity(self) -> TierCapacity:
        """As the port; EMPTY says that nothing is free."""
        fault = self._fault(Call.CAPACITY)
        found = await self._way(fault, self._inner.capacity)
        if fault is not None and fault.kind == Kind.EMPTY:
            return TierCapacity(
                used_bytes=found.total_bytes, free_bytes=0, total_bytes=found.total_bytes
            )
        return found

    # --- batches ----------------------------------------------------------------------------------

    async def store(
        self, batch: Sequence[StoreItem], fence: Fence, *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """As the port, with what goes wrong on the way, in the answer and with the bytes."""
        fault = self._fault(Call.STORE)
        if fault is not None and fault.kind in (Kind.NO_SPACE, Kind.FLIP):
            full = fault.amount if fault.kind == Kind.NO_SPACE else None
            batch = [hurt(item, full) for item in batch]

        async def run(part: Sequence[StoreItem]) -> Sequence[Outcome]:
            return await self._inner.store(part, fence, limit=limit)

        outcomes = await self._batch(fault, batch, run)
        if fault is not None and fault.kind in (Kind.TORN, Kind.ROT, Kind.OLD):
            for item, outcome in zip(batch, outcomes, strict=False):
                if isinstance(outcome, Done) and self._damage is not None:
                    self._damage(item.member, fault.kind)
        return outcomes

    async def around_batch(
        self,
        call: str,
        batch: Sequence[Item],
        run: Callable[[Sequence[Item]], Awaitable[Sequence[Outcome]]],
    ) -> Sequence[Outcome]:
        """What goes wrong with a batch.

        A tier that lies about bytes read back is beyond any controller: no ROT in `verify`.
        """
        return await self._batch(self._fault(Call(call)), batch, run)

    async def _batch(
        self,
        fault: Fault | None,
        batch: Sequence[Item],
        run: Callable[[Sequence[Item]], Awaitable[Sequence[Outcome]]],
    ) -> Sequence[Outcome]:
        match fault:
            case Fault(kind=Kind.FALSE_DONE):
                return [Done()] * len(batch)
            case Fault(kind=Kind.BUSY, amount=seconds):
                until_ms = self._clock.wall_ms() + int(seconds * 1000)
                return [Busy(until_ms=until_ms, detail="injected")] * len(batch)
            case Fault(kind=Kind.PART):
                return await self._way(None, partial(run, batch[: len(batch) // 2]))
        outcomes = await self._way(fault, partial(run, batch))
        match fault:
            case Fault(kind=Kind.CUT, amount=items):
                return outcomes[: len(outcomes) - max(int(items), 1)]
            case Fault(kind=Kind.SURPLUS):
                return [*outcomes, Done()]
            case Fault(kind=Kind.SHUFFLE):
                return outcomes[::-1]
        return outcomes

    # --- reading ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def _open(self, member: Member) -> AsyncIterator[RangedReader]:
        """Opening and each piece may go wrong."""
        await self._way(self._fault(Call.OPEN), _nothing)
        async with self._inner.open(member) as reader:
            yield PassingReader(reader, self._read)

    async def _read(self, run: Callable[[], Awaitable[None]], buffer: memoryview) -> None:
        """One piece for an opened replica."""
        fault = self._fault(Call.READ)
        await self._way(fault, run)
        if fault is not None and fault.kind == Kind.FLIP and len(buffer):
            buffer[0] ^= 1

    # --- the way there and back -------------------------------------------------------------------

    async def _way(self, fault: Fault | None, run: Callable[[], Awaitable[T]]) -> T:
        match fault:
            case Fault(kind=Kind.LOSE_REQUEST):
                await anyio.sleep_forever()
            case Fault(kind=Kind.LOSE_ANSWER):
                self._spawn(_later(self._clock, 0.0, run))
                await anyio.sleep_forever()
            case Fault(kind=Kind.LATE, amount=seconds):
                self._spawn(_later(self._clock, seconds, run))
                await anyio.sleep_forever()
            case Fault(kind=Kind.DELAY, amount=seconds):
                await self._clock.sleep(seconds)
            case Fault(kind=Kind.DOUBLE, amount=seconds):
                self._spawn(_later(self._clock, seconds, run))
            case Fault(kind=Kind.ERROR):
                raise _error(fault)
        answer = await self._carried_out(run)
        if fault is not None and fault.kind == Kind.FAIL_AFTER:
            raise _error(fault)
        return answer

    async def _carried_out(self, run: Callable[[], Awaitable[T]]) -> T:
        if not self._detached:
            return await run()
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._spawn(_answered(run, answer))
        return await answer


async def _nothing() -> None:
    await anyio.lowlevel.checkpoint()


async def _later(clock: Clock, seconds: float, run: Callable[[], Awaitable[object]]) -> None:
    """Carry out, after a while, what nobody waits for any more."""
    await clock.sleep(seconds)
    with contextlib.suppress(Exception):  # there is nobody whom it could be told
        await run()


async def _answered(run: Callable[[], Awaitable[T]], answer: asyncio.Future[T]) -> None:
    try:
        result = await run()
    except Exception as error:  # noqa: BLE001 - it is the asker's
        if not answer.done():
            answer.set_exception(error)
        return
    if not answer.done():
        answer.set_result(result)
