"""The nof tier as the loop sees it.  Layer: a tier; runs on the loop, touches no medium itself.

One worker process has the index and allocates; a few others move bytes.  Every call has a deadline;
a worker that misses it is left behind, and a fresh one replays the index from the device.
Invariant: a replica is reported only after the index worker said that it is durable; whatever
is not answered is UNKNOWN, Retry where certainly nothing was kept, Unknown where it may have been.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar

import anyio

from weightctl.adapters.nof.access import DeviceOptions
from weightctl.adapters.nof.device import Ticket, instance_id
from weightctl.adapters.nof.index_engine import IndexEngine
from weightctl.adapters.nof.pieces import Span, groups
from weightctl.adapters.nof.reader import Reader
from weightctl.adapters.nof.transfers import CLEANUP_S, bring_in, digest_stored
from weightctl.adapters.shared.ownership import tell_adopted
from weightctl.adapters.shared.translate import outcome_from_error
from weightctl.adapters.shared.workers import EngineSpec, WorkerLimits, WorkerPool
from weightctl.controller.core.observation import TierObservation, unknown_observation
from weightctl.controller.core.tiers import Capabilities, TierCapacity, TierProfile
from weightctl.controller.errors import (
    ConfigError,
    IntegrityError,
    ReconcileError,
    TerminalError,
    TransientError,
    UnknownOutcomeError,
)
from weightctl.controller.ports import Busy, Conflict, Corrupt, Done, Retry, Unknown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

    from weightctl.adapters.nof.layout import Superblock
    from weightctl.adapters.nof.records import Replica
    from weightctl.controller.core.observation import Member, Members, ReplicaDetail
    from weightctl.controller.ports import (
        Clock,
        DropItem,
        Fence,
        InventoryItem,
        Limiter,
        Outcome,
        RangedReader,
        StoreItem,
    )

    _Removal = Callable[[IndexEngine, bytes, Sequence[DropItem], Fence], list[Outcome]]

P = ParamSpec("P")
R = TypeVar("R")

_KEYS_MAX = 65_536
"""Keys of one observe request; bounds the time that packing it takes on the loop."""
_PACKAGE = "weightctl.adapters.nof"
_NO_BUFFER = 4096
_CLOSING_S = 5.0


def nof_profile(name: str) -> TierProfile:
    """What a nof tier declares."""
    return TierProfile(
        name=name,
        kind="nof",
        hot=False,
        capabilities=Capabilities(
            persistent=True, atomic_publish=True, checksum=True, device_direct=True
        ),
        bandwidth_bytes_per_s=1_500_000_000,
        latency_s=0.0005,
    )


class NofTier:
    """Replicas on one NVMe namespace or plain file."""

    def __init__(
        self,
        name: str,
        options: DeviceOptions,
        *,
        clock: Clock,
        deadline_s: float = 30.0,
        workers: int = 3,
        adopt: bool = False,
        fence: Fence | None = None,
    ) -> None:
        self.profile = nof_profile(name)
        self._index = WorkerPool(
            f"{name}-index",
            EngineSpec(factory=f"{_PACKAGE}.index_engine:make", options={"options": options}),
            clock=clock,
            limits=WorkerLimits(workers=1, deadline_s=deadline_s, buffer_bytes=_NO_BUFFER),
        )
        self._data = WorkerPool(
            name,
            EngineSpec(
                factory=f"{_PACKAGE}.data_engine:make",
                options={"path": options.path, "writable": not options.read_only},
            ),
            clock=clock,
            limits=WorkerLimits(workers=workers, deadline_s=deadline_s),
        )
        self._adopt = adopt and not options.read_only
        self._fence = fence
        self._pools = AsyncExitStack()
        self._superblock: Superblock | None = None
        self._reading: Counter[str] = Counter()
        """How often each instance is being read here."""
        self._orders = count(1)
        self._given_up: list[int] = []
        """Orders of stores whose abort did not reach the index yet."""

    async def __aenter__(self) -> Self:
        """Open the device, and create or format it where the options say so.

        Raises ConfigError for what a person must mend.  A device that cannot be asked now, or that
        is damaged, is UNKNOWN instead.
        """
        async with AsyncExitStack() as pools:
            await pools.enter_async_context(self._data)
            await pools.enter_async_context(self._index)
            if self._adopt:
                with suppress(ReconcileError, ConfigError):  # then the next call has the same
                    tell_adopted(self.profile.name, await self._index.call(IndexEngine.adopt))
            with suppress(ReconcileError):  # every call asks again; observations tell the problem
                self._superblock = await self._index.call(IndexEngine.info, b"")
                if self._fence is not None:  # an older one is refused from now on
                    await self._index.call(IndexEngine.drop, b"", [], self._fence)
            self._pools = pools.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close the device in order where it answers, and end every worker."""
        with anyio.move_on_after(_CLOSING_S, shield=True), suppress(ReconcileError):
            await self._index.call(IndexEngine.close)  # else the next opening has to prove more
        await self._pools.aclose()

    # --- looking ----------------------------------------------------------------------------------

    async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
        """See ports.Tier.  The epoch is the device's uuid."""
        states = bytearray()
        details: dict[int, ReplicaDetail] = {}
        try:
            superblock = await self._opened()
            for start in range(0, max(len(members), 1), _KEYS_MAX):  # also without any
                keys = members.keys[start : start + _KEYS_MAX]
                wanted = [index - start for index in detail if 0 <= index - start < len(keys)]
                some, more = await self._ask(
                    IndexEngine.observe, members.group_id, list(keys), wanted
                )
                states += some
                details.update((start + index, one) for index, one in more.items())
        except ReconcileError as error:
            return unknown_observation(len(members), f"{error.what}: {error.why}")
        return TierObservation(states=bytes(states), epoch=superblock.uuid.hex(), details=details)

    async def inventory(self, group_id: str | None = None) -> Mapping[str, Sequence[InventoryItem]]:
        """See ports.Tier."""
        return await self._ask(IndexEngine.inventory, group_id)

    async def capacity(self) -> TierCapacity:
        """See ports.Tier.  In whole blocks; what is quarantined or being written is used."""
        used, free, total = await self._ask(IndexEngine.capacity)
        return TierCapacity(used_bytes=used, free_bytes=free, total_bytes=total)

    def map_path(self, member: Member) -> str | None:  # noqa: ARG002 - the port's signature
        """None: a replica's bytes are not a file."""
        return None

    # --- storing ----------------------------------------------------------------------------------

    async def store(
        self, batch: Sequence[StoreItem], fence: Fence, *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """See ports.Tier.  Durable group by group."""
        outcomes: list[Outcome] = []
        sizes = [item.member.size_bytes for item in batch]
        for group in groups(sizes):
            items = [batch[index] for index in group]
            try:
                outcomes += await self._store_group(items, fence, limit)
            except ReconcileError as error:
                outcomes += [outcome_from_error(error)] * len(items)
        return outcomes

    async def _store_group(
        self, items: Sequence[StoreItem], fence: Fence, limit: Limiter | None
    ) -> list[Outcome]:
        superblock = await self._opened()
        order = next(self._orders)
        answers = await self._reserve([item.member for item in items], fence, order)
        pairs = zip(answers, items, strict=True)
        sources = {a.serial: item for a, item in pairs if isinstance(a, Ticket)}
        tickets = {a.serial: a for a in answers if isinstance(a, Ticket)}
        done: dict[int, Outcome] = {}
        try:
            done = await bring_in(self._data, superblock, tickets, sources, limit)
            done |= await self._commit([serial for serial in tickets if serial not in done], fence)
        except UnknownOutcomeError as error:  # of a data worker, so certainly nothing was kept
            done = dict.fromkeys(tickets, Retry(detail=f"{error.what}: {error.why}"))
        except ReconcileError as error:
            done = dict.fromkeys(tickets, outcome_from_error(error))
        finally:
            if not all(isinstance(done.get(serial), Done) for serial in tickets):
                await self._give_up(order)
        return [done[a.serial] if isinstance(a, Ticket) else a for a in answers]

    async def _reserve(
        self, members: Sequence[Member], fence: Fence, order: int
    ) -> list[Ticket | Outcome]:
        try:
            return await self._ask(IndexEngine.reserve, members, fence, order, self._given_up)
        except ReconcileError:
            raise  # not sent, refused, or its worker is gone with all that it had reserved
        except BaseException:
            await self._give_up(order)  # cancelled: the index reserves what nobody will write
            raise

    async def _commit(self, serials: Sequence[int], fence: Fence) -> dict[int, Outcome]:
        if not serials:
            return {}
        try:
            outcomes = await self._ask(IndexEngine.commit, serials, fence)
        except UnknownOutcomeError as error:
            return dict.fromkeys(serials, Unknown(detail=f"{error.what}: {error.why}"))
        return dict(zip(serials, outcomes, strict=True))

    async def _give_up(self, order: int) -> None:
        """Abort what was not committed, now or with the next store.

        A writer that is still at it has its extents locked, so they are not given to another one.
        """
        self._given_up.append(order)
        told = list(self._given_up)
        with anyio.move_on_after(CLEANUP_S, shield=True), suppress(ReconcileError):
            await self._ask(IndexEngine.abort, told)
            self._given_up = [left for left in self._given_up if left not in told]

    # --- removing ---------------------------------------------------------------------------------

    async def drop(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """See ports.Tier.  What is open here is Busy."""
        held = [self._reading[item.instance_id] > 0 for item in batch]
        free = [item for item, is_held in zip(batch, held, strict=True) if not is_held]
        answers = iter(await self._remove(IndexEngine.drop, free, fence))
        busy = Busy(detail="it is open for reading")
        return [busy if is_held else next(answers) for is_held in held]

    async def quarantine(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """See ports.Tier."""
        return await self._remove(IndexEngine.quarantine, batch, fence)

    async def _remove(
        self, method: _Removal, batch: Sequence[DropItem], fence: Fence
    ) -> list[Outcome]:
        try:
            return await self._ask(method, batch, fence)
        except ReconcileError as error:
            return [outcome_from_error(error)] * len(batch)

    # --- reading ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def open(self, member: Member) -> AsyncIterator[RangedReader]:
        """See ports.Tier."""
        (replica,) = await self._ask(IndexEngine.locate, [(member.group_id, member.key)])
        if replica is None:
            raise TransientError(f"{member.key!r} is not there", "no replica", "observe again")
        superblock = await self._opened()
        name = instance_id(superblock.uuid, replica.serial)
        if (replica.size_bytes, replica.sha256) != (member.size_bytes, member.sha256):
            raise IntegrityError(
                f"replica {name} of {member.key!r} is not what was asked for",
                f"{replica.size_bytes} bytes, recorded digest {replica.sha256.hex()}",
                "verify it; it is quarantined and repaired from another tier",
            )
        with self._pinned([name]):
            lives = partial(self._ask, IndexEngine.alive, [replica.serial])
            yield Reader(superblock, replica, pool=self._data, lives=lives)

    async def verify(
        self, batch: Sequence[Member], *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """See ports.Tier."""
        outcomes: list[Outcome] = []
        for group in groups([member.size_bytes for member in batch]):
            outcomes += await self._verify_group([batch[index] for index in group], limit)
        return outcomes

    async def _verify_group(
        self, members: Sequence[Member], limit: Limiter | None
    ) -> list[Outcome]:
        try:
            return await self._verify_together(members, limit)
        except TransientError as error:
            if len(members) == 1:
                return [outcome_from_error(error)]
            # One block that cannot be read must not speak for the others.
            each = [await self._verify_group([member], limit) for member in members]
            return [outcome for (outcome,) in each]
        except ReconcileError as error:
            return [outcome_from_error(error)] * len(members)

    async def _verify_together(
        self, members: Sequence[Member], limit: Limiter | None
    ) -> list[Outcome]:
        superblock = await self._opened()
        names = [(member.group_id, member.key) for member in members]
        replicas = await self._ask(IndexEngine.locate, names)
        there = {r.serial: r for r in replicas if r is not None}
        spans = [Span(r.serial, r.size_bytes, r.extents) for r in there.values()]
        with self._pinned([instance_id(superblock.uuid, serial) for serial in there]):
            async with self._data.lease(transfer=True) as lease:
                digests = await digest_stored(lease, superblock, spans, limit)
            alive = await self._ask(IndexEngine.alive, list(there))
        gone = {serial for serial, lives in zip(there, alive, strict=True) if not lives}
        outcomes: list[Outcome] = []
        for member, replica in zip(members, replicas, strict=True):
            if replica is None or replica.serial in gone:
                outcomes.append(Conflict(detail="no complete replica is there"))
            else:
                name = instance_id(superblock.uuid, replica.serial)
                outcomes.append(_judged(member, replica, name, digests[replica.serial]))
        return outcomes

    @contextmanager
    def _pinned(self, names: Sequence[str]) -> Iterator[None]:
        self._reading.update(names)
        try:
            yield
        finally:
            self._reading.subtract(names)
            for name in names:
                if not self._reading[name]:
                    del self._reading[name]

    # --- asking -----------------------------------------------------------------------------------

    async def _opened(self) -> Superblock:
        """The device that was found first; from then on no other one is accepted."""
        if self._superblock is None:
            try:
                self._superblock = await self._index.call(IndexEngine.info, b"")
            except ConfigError as error:
                raise TerminalError(error.what, error.why, error.todo) from error
        return self._superblock

    async def _ask(
        self,
        method: Callable[Concatenate[IndexEngine, bytes, P], R],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        superblock = await self._opened()
        return await self._index.call(method, superblock.uuid, *args, **kwargs)


def _judged(member: Member, replica: Replica, name: str, got: bytes) -> Outcome:
    if got != member.sha256 or replica.size_bytes != member.size_bytes:
        return Corrupt(expected=member.sha256, got=got, instance_id=name)
    return Done(instance_id=name, moved_bytes=replica.size_bytes)
