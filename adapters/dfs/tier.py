"""The dfs tier as the loop sees it.  Layer: a tier; on the loop, makes no file call itself.

Every request runs in a worker process with a deadline.  Invariants: a medium that does not answer
is UNKNOWN, never empty, and holds up nobody; a batch stops at the first request that was not
answered; a key that is being written here is PARTIAL until it is durable; what is being read here
is not dropped from here.
"""

from __future__ import annotations

import pickle
import re
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import anyio

from weightctl.adapters.dfs.accounts import Accounts
from weightctl.adapters.dfs.engine import Engine
from weightctl.adapters.dfs.strangers import Strangers
from weightctl.adapters.dfs.transfers import Reader, bring_in, read_back
from weightctl.adapters.shared.ownership import tell_adopted
from weightctl.adapters.shared.pump import raise_first
from weightctl.adapters.shared.remembering import write_remembered
from weightctl.adapters.shared.translate import outcome_from_error
from weightctl.adapters.shared.workers import EngineSpec, WorkerLimits, WorkerPool
from weightctl.controller.core.identity import percent_encode
from weightctl.controller.core.observation import (
    MemberState,
    TierObservation,
    unknown_observation,
)
from weightctl.controller.core.tiers import Capabilities, TierProfile
from weightctl.controller.errors import ConfigError, ReconcileError
from weightctl.controller.ports import Busy, Done, Outcome, Permanent, Retry, Unknown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence

    from weightctl.adapters.dfs.options import DfsOptions
    from weightctl.controller.core.observation import Member, Members
    from weightctl.controller.core.tiers import TierCapacity
    from weightctl.controller.ports import (
        DropItem,
        Fence,
        InventoryItem,
        Limiter,
        StoreItem,
        TierContext,
    )

REQUEST_ITEMS_MAX = 64
"""Items of one request that looks or removes; bounds what a deadline leaves unknown."""
PICKLED_OFF_LOOP = 4096
"""Members beyond which a request is packed in a thread."""
_HOST_BYTES = 3
_HOST = re.compile(rf"[0-9a-f]{{{2 * _HOST_BYTES}}}")
_RANDOM_BYTES = 5


class DfsTier:
    """Replicas in a shared folder (ports.Tier)."""

    def __init__(self, name: str, options: DfsOptions, context: TierContext) -> None:
        self.profile = TierProfile(
            name=name,
            kind="dfs",
            hot=False,
            capabilities=Capabilities(
                persistent=True,
                shared=True,
                atomic_publish=True,
                checksum=True,
                delete_is_immediate=False,
                list_is_consistent=False,
            ),
            bandwidth_bytes_per_s=500_000_000,
            latency_s=0.005,
        )
        self._options = options
        self._context = context
        self._accounts = Accounts(options.capacity_bytes, context.clock)
        self._strangers = Strangers(options.grace_s)
        self._writing: set[tuple[str, str]] = set()
        """Group id and key of what is being stored."""
        self._reading: Counter[tuple[str, str, str]] = Counter()
        """Group id, key and instance of open readers; no instance while one is being opened."""
        self._stack = AsyncExitStack()
        self._pool: WorkerPool

    async def __aenter__(self) -> Self:
        """Start the workers, find or mark the root, clean up.  Raises ConfigError.

        A medium that does not answer is no error: it is UNKNOWN until it does.
        """
        kept = Path(self._context.state_dir) / "tiers" / percent_encode(self.profile.name)
        host = await anyio.to_thread.run_sync(self._host, kept.with_name(f"{kept.name}.host"))
        engine = {
            "path": self._options.path,
            "remembered": str(kept.with_name(f"{kept.name}.uuid")),
            "host": host,
            "uuid": self._context.entropy.token(16),
            "read_only": self._context.read_only,
            "holder": self._context.holder,
        }
        self._pool = WorkerPool(
            self.profile.name,
            EngineSpec(factory="weightctl.adapters.dfs.engine:Engine", options=engine),
            clock=self._context.clock,
            limits=WorkerLimits(workers=self._options.workers, deadline_s=self._options.deadline_s),
        )
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._pool)
            with suppress(ReconcileError):
                if self._options.adopt and not self._context.read_only:
                    tell_adopted(self.profile.name, await self._pool.call(Engine.adopt))
            with suppress(ReconcileError):
                await self._pool.call(Engine.enter)
                if not self._context.read_only:
                    await self._pool.call(Engine.sweep)
                if self._context.fence is not None:  # an older one is refused from now on
                    await self._pool.call(Engine.admit, self._context.fence)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """End the workers, within seconds even when the medium hangs."""
        await self._stack.aclose()

    def _host(self, path: Path) -> str:
        try:
            return self._host_text(path)
        except OSError as error:
            raise ConfigError(
                f"the dfs tier {self.profile.name!r} cannot keep what this host is called",
                f"{error.strerror}: {error.filename or path}",
                "make the state directory writable and give it room",
            ) from error

    def _host_text(self, path: Path) -> str:
        """What instance ids of this state directory's controller begin with.

        A file that a crash has emptied is written anew: with no text of its own, this host would
        take every other host's partial files for its own, and its names would not be read back.
        """
        with suppress(FileNotFoundError):
            known = path.read_bytes().decode("ascii", "replace")
            if _HOST.fullmatch(known):
                return known
        fresh = self._context.entropy.token(_HOST_BYTES)
        if not self._context.read_only:
            write_remembered(path, fresh)
        return fresh

    # --- seeing ---

    async def observe(self, members: Members, *, detail: Sequence[int] = ()) -> TierObservation:
        """As ports.Tier.observe."""
        written = self._written(members.group_id)
        asked: Members | bytes = members
        if len(members) > PICKLED_OFF_LOOP:
            asked = await anyio.to_thread.run_sync(pickle.dumps, members)
        try:
            seen, strangers = await self._pool.call(Engine.observe, asked, list(detail))
        except ReconcileError as error:
            return unknown_observation(len(members), f"{error.what}: {error.why}")
        states, details = bytearray(seen.states), dict(seen.details)
        for index in self._strangers.see(strangers, self._context.clock.monotonic_s()):
            states[index] = MemberState.ABSENT
        for key in written | self._written(members.group_id):
            with suppress(ValueError):
                index = members.keys.index(key)
                states[index] = MemberState.PARTIAL if states[index] else MemberState.UNKNOWN
                details.pop(index, None)
        return TierObservation(
            states=bytes(states), epoch=seen.epoch, details=details, problem=seen.problem
        )

    def _written(self, group_id: str) -> set[str]:
        return {key for group, key in self._writing if group == group_id}

    async def inventory(self, group_id: str | None = None) -> Mapping[str, Sequence[InventoryItem]]:
        """As ports.Tier.inventory."""
        found: dict[str, Sequence[InventoryItem]] = {}
        groups = [group_id] if group_id is not None else await self._pool.call(Engine.group_ids)
        for group in groups:
            found |= await self._pool.call(Engine.inventory, group)
        return found

    async def capacity(self) -> TierCapacity:
        """As ports.Tier.capacity."""
        return await self._accounts.capacity(self._pool)

    def map_path(self, member: Member) -> str | None:  # noqa: ARG002 - part of the port
        """None: a consumer that maps such a file may hang."""
        return None

    # --- moving ---

    async def store(
        self, batch: Sequence[StoreItem], fence: Fence, *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """As ports.Tier.store."""
        if self._context.read_only:
            return [_READ_ONLY] * len(batch)
        answers: list[Outcome | None] = []
        try:
            if self._accounts.limit_bytes is not None:
                await self._accounts.count(self._pool)
            for start in range(0, len(batch), REQUEST_ITEMS_MAX):
                members = [item.member for item in batch[start : start + REQUEST_ITEMS_MAX]]
                answers += await self._pool.call(
                    Engine.standing, members, fence, self._strangers.still()
                )
        except ReconcileError as error:
            answers += [outcome_from_error(error)] * (len(batch) - len(answers))

        async def store_one(index: int) -> Outcome:
            answer = answers[index]
            return answer or await self._store_one(batch[index], fence, limit)

        return await self._each(len(batch), store_one)

    async def _store_one(self, item: StoreItem, fence: Fence, limit: Limiter | None) -> Outcome:
        with self._claimed(item.member) as claimed:
            if not claimed:
                return Busy(detail="it is being written by this process")
            return await self._bring_in(item, fence, limit)

    async def _bring_in(self, item: StoreItem, fence: Fence, limit: Limiter | None) -> Outcome:
        size_bytes = item.member.size_bytes
        try:
            with self._accounts.reserved(size_bytes):
                async with self._pool.lease(transfer=True) as worker:
                    outcome = await bring_in(
                        worker,
                        item,
                        fence,
                        random=self._context.entropy.token(_RANDOM_BYTES),
                        still=self._strangers.still(),
                        limit=limit,
                    )
                if isinstance(outcome, Done):
                    self._accounts.stored(size_bytes)
                return outcome
        except ReconcileError as error:
            return outcome_from_error(error, expected_sha256=item.member.sha256)

    async def verify(
        self, batch: Sequence[Member], *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        """As ports.Tier.verify."""

        async def verify_one(index: int) -> Outcome:
            member = batch[index]
            if (member.group_id, member.key) in self._writing:
                return Busy(detail="it is being written by this process")
            try:
                async with self._pool.lease(transfer=True) as worker:
                    return await read_back(worker, member, limit)
            except ReconcileError as error:
                return outcome_from_error(error, expected_sha256=member.sha256)

        return await self._each(len(batch), verify_one)

    @asynccontextmanager
    async def open(self, member: Member) -> AsyncIterator[Reader]:
        """As ports.Tier.open."""
        group_id, key = member.group_id, member.key
        with self._held(group_id, key, ""):
            opened = await self._pool.call(Engine.open, member)
            hold = self._held(group_id, key, opened.instance_id)
            hold.__enter__()
        try:
            yield Reader(self._pool, opened)
        finally:
            hold.__exit__(None, None, None)

    @contextmanager
    def _claimed(self, member: Member) -> Iterator[bool]:
        """Whether the member could be claimed for writing; claimed until the end."""
        claim = (member.group_id, member.key)
        if claim in self._writing:
            yield False
            return
        self._writing.add(claim)
        try:
            yield True
        finally:
            self._writing.discard(claim)

    @contextmanager
    def _held(self, group_id: str, key: str, instance_id: str) -> Iterator[None]:
        """Keep a replica from being dropped from here."""
        held = (group_id, key, instance_id)
        self._reading[held] += 1
        try:
            yield
        finally:
            self._reading[held] -= 1
            if not self._reading[held]:
                del self._reading[held]

    async def _each(
        self, count: int, act: Callable[[int], Awaitable[Outcome]]
    ) -> Sequence[Outcome]:
        """Act on each index, a few at once; after an unanswered one the rest is not tried."""
        outcomes: list[Outcome] = [_NOT_TRIED] * count
        indexes = iter(range(count))
        unanswered = False

        async def work() -> None:
            nonlocal unanswered
            for index in indexes:
                if unanswered:
                    return
                outcomes[index] = await act(index)
                unanswered |= isinstance(outcomes[index], Unknown)

        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(min(count, self._options.workers - 1)):
                    tasks.start_soon(work)
        except BaseExceptionGroup as group:
            raise_first(group)
        return outcomes

    # --- removing ---

    async def drop(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """As ports.Tier.drop."""

        async def request(items: Sequence[DropItem]) -> Sequence[Outcome]:
            return await self._pool.call(Engine.drop, items, fence, self._strangers.still())

        return await self._remove(batch, request)

    async def quarantine(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """As ports.Tier.quarantine."""

        async def request(items: Sequence[DropItem]) -> Sequence[Outcome]:
            return await self._pool.call(Engine.quarantine, items, fence)

        return await self._remove(batch, request)

    async def _remove(
        self,
        batch: Sequence[DropItem],
        request: Callable[[Sequence[DropItem]], Awaitable[Sequence[Outcome]]],
    ) -> Sequence[Outcome]:
        if self._context.read_only:
            return [_READ_ONLY] * len(batch)
        outcomes: list[Outcome] = [_NOT_TRIED] * len(batch)
        free = []
        for index, item in enumerate(batch):
            if self._is_read(item):
                outcomes[index] = Busy(detail="it is open for reading in this process")
            else:
                free.append(index)
        for start in range(0, len(free), REQUEST_ITEMS_MAX):
            indexes = free[start : start + REQUEST_ITEMS_MAX]
            try:
                answers = await request([batch[index] for index in indexes])
            except ReconcileError as error:
                answers = [outcome_from_error(error)] * len(indexes)
            for index, answer in zip(indexes, answers, strict=True):
                outcomes[index] = answer
            if any(isinstance(answer, Unknown) for answer in answers):
                break
        return outcomes

    def _is_read(self, item: DropItem) -> bool:
        group_id, key = item.member.group_id, item.member.key
        return any((group_id, key, held) in self._reading for held in ("", item.instance_id))


_READ_ONLY = Permanent(detail="the tier was opened for asking only")
_NOT_TRIED = Retry(detail="not tried: the medium did not answer for an earlier one")
