"""The border between weightctl and a plugin.  Layer: runtime.

Foreign code may be broken, slow or hostile; whatever it does ends here as an answer that the loop
knows: an error of ours, or an outcome that is Unknown.  Nothing that it answers is used unless it
has the right type and a bounded size.  What it did last is kept in `complaint`, for people.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self, TypeVar, cast

import anyio

from weightctl.controller.core.observation import unknown_observation
from weightctl.controller.errors import WeightctlError
from weightctl.controller.runtime.answers import (
    capacity_in,
    checks_in,
    descriptor_in,
    listed_in,
    names_in,
    outcomes_in,
    report_in,
    seen_in,
    shown,
)
from weightctl.controller.runtime.forwarding import ForwardingTier
from weightctl.controller.runtime.guest import Guest
from weightctl.controller.runtime.holding import Owner

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from weightctl.controller.core.observation import Member, Members, TierObservation
    from weightctl.controller.core.tiers import TierCapacity, TierProfile
    from weightctl.controller.ports import (
        Check,
        Clock,
        InventoryItem,
        MediumReport,
        Outcome,
        RangedReader,
        Tier,
    )

T = TypeVar("T")
Item = TypeVar("Item")

ENTER_S = 60.0
LEAVE_S = 30.0
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


def complaint_of(tier: Tier) -> str:
    """What a tier behind a border did last that no tier may do; empty when there is nothing."""
    return tier.complaint if isinstance(tier, BorderedTier) else ""


def remark_of(tier: Tier) -> str:
    """What a tier says of how it was looked at (`ports.Remarking`); empty when it says nothing."""
    remark = getattr(tier, "remark", None)
    return str(remark()) if callable(remark) else ""


def dropping_of(tier: Tier, keys: Sequence[str]) -> str:
    """How a tier would drop these (`ports.Foretelling`); empty when it says nothing."""
    dropping = getattr(tier, "dropping", None)
    return str(dropping(keys)) if callable(dropping) else ""


class BorderedTier(ForwardingTier):
    """`ports.Tier` over a plugin's.

    The plugin is entered and left in a task of its own, so that an error of what it runs in the
    background ends that task and not the controller's.
    """

    def __init__(
        self, inner: Tier, profile: TierProfile, clock: Clock, *, owner: Owner | None = None
    ) -> None:
        super().__init__(inner)
        self._profile = profile
        owner = owner or Owner(name=profile.name, plugin=profile.kind)
        self._guest = Guest(profile, clock, owner)
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
            raise self._guest.error("entering", f"no answer within {ENTER_S:g} s")
        if self._host.done():
            self._host.result()
        return self

    async def _live(self) -> None:
        await self._guest.driven("entering", self._inner.__aenter__)
        self._entered.set()
        await self._leave.wait()
        await self._guest.driven("leaving", lambda: self._inner.__aexit__(None, None, None))

    async def __aexit__(self, *exc_info: object) -> None:
        host, self._host = self._host, None
        if host is None:
            return
        self._leave.set()
        with anyio.CancelScope(shield=True):
            done, _ = await asyncio.wait({host}, timeout=LEAVE_S)
            if not done:
                self._guest.complain("leaving", f"no end within {LEAVE_S:g} s")
                host.cancel()
                done, _ = await asyncio.wait({host}, timeout=LEAVE_S)
        if done and not host.cancelled() and (error := host.exception()) is not None:
            self._guest.complain("leaving", shown(error))

    def _check(self, name: str) -> None:
        """Raises TransientError when the plugin has ended by itself, or is left alone."""
        if self._host is not None and self._host.done():
            raise self._guest.error("every call", "what it ran in the background ended it")
        self._guest.admit(name)

    async def around(self, call: str, run: Callable[[], Awaitable[T]]) -> T:
        """Turn by turn, unless the plugin has ended or is left alone."""
        self._check(call)
        return await self._guest.driven(call, run)

    @property
    def profile(self) -> TierProfile:
        """As the plugin had it when it was built."""
        return self._profile

    @property
    def complaint(self) -> str:
        """What the plugin did last that no tier may do; empty when there is nothing."""
        return self._guest.complaint

    # --- looking ----------------------------------------------------------------------------------

    async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
        """As the port: never raises; what is no answer leaves everything UNKNOWN."""
        try:
            answer = await super().observe(members, detail=detail)
            return self._guest.right("observe", lambda: seen_in(answer))
        except WeightctlError as error:
            problem = "; ".join(filter(None, (error.what, error.why)))
            return unknown_observation(len(members), problem)

    async def inventory(self, group_id: str | None = None) -> Mapping[str, Sequence[InventoryItem]]:
        """As the port."""
        answer = await super().inventory(group_id)
        return await self._guest.driven("inventory", lambda: listed_in(answer))

    async def capacity(self) -> TierCapacity:
        """As the port."""
        answer = await super().capacity()
        return self._guest.right("capacity", lambda: capacity_in(answer))

    def map_path(self, member: Member) -> str | None:
        """As the port; None for what is no path."""
        self._check("map_path")
        try:
            path = self._guest.asked("map_path", lambda: super(BorderedTier, self).map_path(member))
        except Exception as error:
            raise self._guest.error("map_path", shown(error)) from error
        return path if isinstance(path, str) else None

    def remark(self) -> str:
        """As `ports.Remarking`; empty for a plugin that has nothing of the kind."""
        try:
            return shown(self._guest.asked("remark", super().remark))
        except Exception as error:  # noqa: BLE001 - foreign code
            self._guest.complain("remark", shown(error))
            return ""

    def dropping(self, keys: Sequence[str]) -> str:
        """As `ports.Foretelling`; empty for a plugin that has nothing of the kind."""
        try:
            ask = super().dropping
            return shown(self._guest.asked("dropping", lambda: ask(keys)))
        except Exception as error:  # noqa: BLE001 - foreign code
            self._guest.complain("dropping", shown(error))
            return ""

    def unfit(self, member: Member) -> str:
        """As `ports.Choosing`; empty for a plugin that does not choose."""
        try:
            ask = super().unfit
            return shown(self._guest.asked("unfit", lambda: ask(member)))
        except Exception as error:  # noqa: BLE001 - foreign code
            self._guest.complain("unfit", shown(error))
            return ""

    async def unprovable(self, members: Sequence[Member]) -> Mapping[str, str]:
        """As `ports.Doubting`."""
        answer = await super().unprovable(members)
        keys = [member.key for member in members]
        return self._guest.right(
            "unprovable", lambda: {key: shown(answer[key]) for key in keys if key in answer}
        )

    async def checks(self, *, evidence_max_age_s: float) -> Sequence[Check]:
        """As `ports.Checking`."""
        answer = await super().checks(evidence_max_age_s=evidence_max_age_s)
        return self._guest.right("checks", lambda: checks_in(answer))

    @property
    def numbers(self) -> Sequence[str]:
        """As `ports.Reporting`; empty for a plugin that reports nothing."""
        try:
            return self._guest.asked(
                "numbers", lambda: names_in(getattr(self._inner, "numbers", ()))
            )
        except Exception as error:  # noqa: BLE001 - foreign code
            self._guest.complain("numbers", shown(error))
            return ()

    async def report(self) -> MediumReport:
        """As `ports.Reporting`; only for a plugin with `numbers`."""
        answer = await super().report()
        return self._guest.right("report", lambda: report_in(answer, self.numbers))

    async def around_batch(
        self,
        call: str,
        batch: Sequence[Item],
        run: Callable[[Sequence[Item]], Awaitable[Sequence[Outcome]]],
    ) -> Sequence[Outcome]:
        """No outcome but one of ours, and at most one more than asked."""
        answer = await super().around_batch(call, batch, run)
        return self._guest.right(call, lambda: outcomes_in(answer, len(batch)))

    # --- reading ----------------------------------------------------------------------------------

    def open(self, member: Member) -> AbstractAsyncContextManager[RangedReader]:
        """As the port."""
        return self._open(member)

    @asynccontextmanager
    async def _open(self, member: Member) -> AsyncIterator[RangedReader]:
        self._check("open")
        try:
            opened = self._guest.asked("open", lambda: self._inner.open(member))
        except WeightctlError:
            raise
        except Exception as error:
            raise self._guest.error("open", shown(error)) from error
        reader = await self._guest.driven("open", opened.__aenter__)
        try:
            yield cast("RangedReader", _BorderedReader(self._guest, reader))
        except BaseException as error:
            told = (type(error), error, error.__traceback__)
            await self._guest.driven("closing", lambda: opened.__aexit__(*told))
            raise
        else:
            await self._guest.driven("closing", lambda: opened.__aexit__(None, None, None))


class _BorderedReader:
    """`ports.RangedReader` over a plugin's."""

    def __init__(self, guest: Guest, inner: RangedReader) -> None:
        self._guest = guest
        self._inner = inner
        try:
            self.size_bytes = guest.asked("open", lambda: int(inner.size_bytes))
            self.instance_id = guest.asked("open", lambda: str(inner.instance_id))
        except Exception as error:
            raise guest.error("open", f"no reader: {shown(error)}") from error

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        """As the port."""
        self._guest.admit("read_into")
        await self._guest.driven("read_into", lambda: self._inner.read_into(offset, buffer))

    def fileno(self) -> int | None:
        """As the port; None for what is no descriptor of a file."""
        try:
            return self._guest.asked("fileno", lambda: descriptor_in(self._inner.fileno()))
        except Exception as error:  # noqa: BLE001 - foreign code; its bytes come by `read_into`
            self._guest.complain("fileno", shown(error))
            return None
