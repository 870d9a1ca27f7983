"""The border between weightctl and a plugin.  Layer: runtime.

Foreign code may be broken, slow or hostile; whatever it does ends here as an answer that the loop
knows: an error of ours, or an outcome that is Unknown.  Nothing that it answers is used unless it
has the right type and a bounded size.  What it did last is kept in `complaint`, for people.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self, TypeVar, cast

import anyio

from weightctl.controller.core.observation import unknown_observation
from weightctl.controller.errors import (
    InvariantViolationError,
    TransientError,
    UnknownOutcomeError,
    WeightctlError,
)
from weightctl.controller.runtime.answers import (
    BadAnswerError,
    capacity_in,
    listed_in,
    names_in,
    outcomes_in,
    report_in,
    seen_in,
    shown,
)
from weightctl.controller.runtime.turns import OverdueError, SelfCancelledError, Turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from weightctl.controller.core.observation import Member, Members, TierObservation
    from weightctl.controller.core.tiers import TierCapacity, TierProfile
    from weightctl.controller.ports import (
        Clock,
        DropItem,
        Fence,
        InventoryItem,
        Limiter,
        MediumReport,
        Outcome,
        RangedReader,
        Reporting,
        StoreItem,
        Tier,
    )

T = TypeVar("T")

ENTER_S = 60.0
LEAVE_S = 30.0
LIMIT_S = 3600.0
"""For a call that nobody could cancel; callers have deadlines of their own."""
LOOK_LIMIT_S = 60.0
"""The same for a call that every pass waits for."""
_LOOKS = ("observe", "inventory", "capacity", "report")
HELD_S = 1.0
"""A turn that holds the loop for longer is complained of."""
METHODS = (
    "__aenter__",
    "__aexit__",
    "observe",
    "store",
    "drop",
    "quarantine",
    "open",
    "verify",
    "inventory",
    "capacity",
    "map_path",
)
_log = logging.getLogger(__name__)


def complaint_of(tier: Tier) -> str:
    """What a tier behind a border did last that no tier may do; empty when there is nothing."""
    return tier.complaint if isinstance(tier, BorderedTier) else ""


def remark_of(tier: Tier) -> str:
    """What a tier says of how it was looked at (`ports.Remarking`); empty when it says nothing."""
    remark = getattr(tier, "remark", None)
    return str(remark()) if callable(remark) else ""


class BorderedTier:
    """`ports.Tier` over a plugin's.

    The plugin is entered and left in a task of its own, so that an error of what it runs in the
    background ends that task and not the controller's.
    """

    def __init__(self, inner: Tier, profile: TierProfile, clock: Clock) -> None:
        self.profile = profile
        self.complaint = ""
        self._told: dict[str, str] = {}
        self._inner = inner
        self._clock = clock
        self._host: asyncio.Task[None] | None = None
        self._entered = asyncio.Event()
        self._leave = asyncio.Event()

    # --- life -------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._host = asyncio.get_running_loop().create_task(self._live())
        entered = asyncio.ensure_future(self._entered.wait())
        try:
            await asyncio.wait(
                {self._host, entered}, timeout=ENTER_S, return_when=asyncio.FIRST_COMPLETED
            )
        except BaseException:
            self._host.cancel()
            raise
        finally:
            entered.cancel()
        if not self._host.done() and not self._entered.is_set():
            self._host.cancel()
            raise self._error("entering", f"no answer within {ENTER_S:g} s")
        if self._host.done():
            self._host.result()
        return self

    async def _live(self) -> None:
        await self.driven("entering", self._inner.__aenter__)
        self._entered.set()
        await self._leave.wait()
        await self.driven("leaving", lambda: self._inner.__aexit__(None, None, None))

    async def __aexit__(self, *exc_info: object) -> None:
        host, self._host = self._host, None
        if host is None:
            return
        self._leave.set()
        with anyio.CancelScope(shield=True):
            done, _ = await asyncio.wait({host}, timeout=LEAVE_S)
            if not done:
                self._complain("leaving", f"no end within {LEAVE_S:g} s")
                host.cancel()
                done, _ = await asyncio.wait({host}, timeout=LEAVE_S)
        if done and not host.cancelled() and (error := host.exception()) is not None:
            self._complain("leaving", shown(error))

    def _check(self) -> None:
        """Raises TransientError when the plugin has ended by itself."""
        if self._host is not None and self._host.done():
            raise self._error("every call", "what it ran in the background ended it")

    # --- looking ----------------------------------------------------------------------------------

    async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
        """As the port: never raises; what is no answer leaves everything UNKNOWN."""
        try:
            answer = await self._call(
                "observe", lambda: self._inner.observe(members, detail=detail)
            )
            return self._right("observe", lambda: seen_in(answer))
        except WeightctlError as error:
            problem = "; ".join(filter(None, (error.what, error.why)))
            return unknown_observation(len(members), problem)

    async def inventory(self, group_id: str | None = None) -> Mapping[str, Sequence[InventoryItem]]:
        """As the port."""
        answer = await self._call("inventory", lambda: self._inner.inventory(group_id))
        try:
            return await listed_in(answer)
        except Exception as error:  # noqa: BLE001 - the mapping is foreign code too
            raise self._error("inventory", shown(error)) from None

    async def capacity(self) -> TierCapacity:
        """As the port."""
        answer = await self._call("capacity", self._inner.capacity)
        return self._right("capacity", lambda: capacity_in(answer))

    def map_path(self, member: Member) -> str | None:
        """As the port; None for what is no path."""
        self._check()
        try:
            path = self._inner.map_path(member)
        except Exception as error:
            raise self._error("map_path", shown(error)) from error
        return path if isinstance(path, str) else None

    def remark(self) -> str:
        """As `ports.Remarking`; empty for a plugin that has nothing of the kind."""
        try:
            remark = getattr(self._inner, "remark", None)
            return shown(remark()) if callable(remark) else ""
        except Exception as error:  # noqa: BLE001 - foreign code
            self._complain("remark", shown(error))
            return ""

    @property
    def numbers(self) -> Sequence[str]:
        """As `ports.Reporting`; empty for a plugin that reports nothing."""
        try:
            return names_in(getattr(self._inner, "numbers", ()))
        except Exception as error:  # noqa: BLE001 - foreign code
            self._complain("numbers", shown(error))
            return ()

    async def report(self) -> MediumReport:
        """As `ports.Reporting`; only for a plugin with `numbers`."""
        inner = cast("Reporting", self._inner)
        answer = await self._call("report", inner.report)
        return self._right("report", lambda: report_in(answer, self.numbers))

    # --- batches ----------------------------------------------------------------------------------

    async def store(
        self, batch: Sequence[StoreItem], fence: Fence, *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """As the port."""
        return await self._batch(
            "store", len(batch), lambda: self._inner.store(batch, fence, limit=limit)
        )

    async def drop(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """As the port."""
        return await self._batch("drop", len(batch), lambda: self._inner.drop(batch, fence))

    async def quarantine(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """As the port."""
        return await self._batch(
            "quarantine", len(batch), lambda: self._inner.quarantine(batch, fence)
        )

    async def verify(
        self, batch: Sequence[Member], *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """As the port."""
        return await self._batch(
            "verify", len(batch), lambda: self._inner.verify(batch, limit=limit)
        )

    async def _batch(
        self, name: str, asked: int, call: Callable[[], Awaitable[object]]
    ) -> Sequence[Outcome]:
        answer = await self._call(name, call)
        return self._right(name, lambda: outcomes_in(answer, asked))

    # --- reading ----------------------------------------------------------------------------------

    def open(self, member: Member) -> AbstractAsyncContextManager[RangedReader]:
        """As the port."""
        return self._open(member)

    @asynccontextmanager
    async def _open(self, member: Member) -> AsyncIterator[RangedReader]:
        self._check()
        try:
            opened = self._inner.open(member)
        except WeightctlError:
            raise
        except Exception as error:
            raise self._error("open", shown(error)) from error
        reader = await self.driven("open", opened.__aenter__)
        try:
            yield cast("RangedReader", _BorderedReader(self, reader))
        except BaseException as error:
            told = (type(error), error, error.__traceback__)
            await self.driven("closing", lambda: opened.__aexit__(*told))
            raise
        else:
            await self.driven("closing", lambda: opened.__aexit__(None, None, None))

    # --- the border -------------------------------------------------------------------------------

    async def _call(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        self._check()
        return await self.driven(name, call)

    async def driven(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        """Its answer, of whatever type.  Raises weightctl's errors only."""
        try:
            return await Turns(
                call(),
                clock=self._clock,
                limit_s=LOOK_LIMIT_S if name in _LOOKS else LIMIT_S,
                held=lambda seconds: self._held(name, seconds),
                left=lambda: self._complain(name, "it goes on although it was cancelled"),
            )
        except InvariantViolationError as error:  # ours would end the process; this is the plugin's
            raise self._error(name, shown(error)) from error
        except WeightctlError as error:
            raise _bounded(error) from error.__cause__
        except OverdueError as error:
            raise self._unknown(name, "no end, and it cannot be cancelled") from error
        except SelfCancelledError as error:
            raise self._unknown(name, "it cancelled itself") from error
        except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # even SystemExit is only this tier's fault
            raise self._unknown(name, f"untranslated {shown(error)}") from error

    def _held(self, name: str, seconds: float) -> None:
        if seconds > HELD_S:
            self._complain(name, f"it held up the event loop for {seconds:.1f} s")

    def _right(self, name: str, made: Callable[[], T]) -> T:
        try:
            return made()
        except BadAnswerError as error:
            raise self._unknown(name, str(error)) from None

    def _error(self, name: str, why: str) -> TransientError:
        self._complain(name, why)
        return TransientError(
            f"{name} of tier {self.profile.name}",
            f"{TransientError.reason}: {why}",
            "tell the author of its plugin; `weightctl adapter check` shows it",
        )

    def _unknown(self, name: str, why: str) -> UnknownOutcomeError:
        self._complain(name, why)
        return UnknownOutcomeError(
            f"{name} of tier {self.profile.name}",
            f"{UnknownOutcomeError.reason}: {why}",
            "tell the author of its plugin; `weightctl adapter check` shows it",
        )

    def _complain(self, name: str, why: str) -> None:
        self.complaint = f"{name}: {why}"
        if self._told.get(name) != why.partition(" for ")[0]:  # not once more every second
            self._told[name] = why.partition(" for ")[0]
            kind = self.profile.kind
            _log.error("tier %s (plugin %s): %s", self.profile.name, kind, self.complaint)


class _BorderedReader:
    """`ports.RangedReader` over a plugin's."""

    def __init__(self, border: BorderedTier, inner: RangedReader) -> None:
        self._border = border
        self._inner = inner
        try:
            self.size_bytes = int(inner.size_bytes)
            self.instance_id = str(inner.instance_id)
        except Exception as error:
            raise border._error("open", f"no reader: {shown(error)}") from error  # noqa: SLF001

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        """As the port."""
        await self._border.driven("read_into", lambda: self._inner.read_into(offset, buffer))

    def fileno(self) -> int | None:
        """As the port."""
        return self._inner.fileno()


def _bounded(error: WeightctlError) -> WeightctlError:
    """The same error with texts of a bounded length."""
    error.what, error.why, error.todo = map(shown, (error.what, error.why, error.todo))
    return error
