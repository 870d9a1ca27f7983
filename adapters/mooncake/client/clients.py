"""The clients of the wheel, in worker processes of their own.  Layer: a tier; on the loop.

One owns: what a client put only the same one can drop, so it is never killed lightly.  Others read,
and may be killed at any time.  Invariant: no client is set up before a Master was seen serving, for
without one the library blocks for long.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import anyio

from weightctl.adapters.mooncake.client.codes import Meaning, meaning_of
from weightctl.adapters.mooncake.client.engine import Engine
from weightctl.adapters.shared.workers import EngineSpec, WorkerLimits, WorkerPool
from weightctl.controller.errors import ReconcileError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from weightctl.adapters.mooncake.site import Site
    from weightctl.adapters.mooncake.standing import Standing
    from weightctl.adapters.shared.workers import WorkerLease

P = ParamSpec("P")
R = TypeVar("R")

READERS = 2
_LOCAL_BUFFER_BYTES = 32 * 1024 * 1024
_REVOKE_S = 5.0


class Clients:
    """The clients of one connection; they start when they are first needed."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._view = ""
        self._token = ""
        self._unrevoked: set[str] = set()
        """Keys whose put was begun and could not be taken back yet."""
        self._owner: WorkerPool
        self._readers: WorkerPool

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """They can be used within the block, and end with it."""
        self._token = ""
        async with AsyncExitStack() as stack:
            self._owner = await stack.enter_async_context(self.pool("owner", 1))
            self._readers = await stack.enter_async_context(self.pool("reader", READERS))
            yield

    def pool(self, role: str, workers: int) -> WorkerPool:
        """Clients of their own, not entered yet; none has a segment."""
        options = self._site.options
        setup = {
            "local_hostname": options.hostname,
            "metadata_server": options.metadata,
            "global_segment_size": 0,
            "local_buffer_size": _LOCAL_BUFFER_BYTES,
            "protocol": options.protocol,
            "rdma_devices": options.devices,
            "master_server_addr": options.master,
        }
        return WorkerPool(
            f"{options.cluster}-{role}",
            EngineSpec(
                factory="weightctl.adapters.mooncake.client.engine:Engine",
                options={"library": options.library, "setup": setup},
            ),
            clock=self._site.context.clock,
            limits=WorkerLimits(workers=workers, deadline_s=options.transfer_s),
        )

    # --- using one ---

    @asynccontextmanager
    async def owner(self) -> AsyncIterator[CountedWorker]:
        """The client that puts and drops.  Raises ReconcileError."""
        async with self.client_of(self._owner) as (worker, _):
            yield worker

    async def owner_name(self) -> str:
        """What a row's `owner` is for objects put now; another one in another epoch or view.

        Whether a Master that took over knows who has put an object is not certain.  Raises
        ReconcileError.
        """
        async with self.client_of(self._owner) as (_, self._token):
            return self.last_owner_name

    @property
    def last_owner_name(self) -> str:
        """As `owner_name`, of the client that has owned last here; without asking anybody."""
        return f"{self._token}@{self._site.book.epoch}:{self._view}"

    @asynccontextmanager
    async def reader(self) -> AsyncIterator[CountedWorker]:
        """A client that reads.  Raises ReconcileError."""
        async with self.client_of(self._readers) as (worker, _):
            yield worker

    @asynccontextmanager
    async def client_of(self, pool: WorkerPool) -> AsyncIterator[tuple[CountedWorker, str]]:
        """A client of a pool, set up, and the token that it has for its life.

        Raises ReconcileError.
        """
        site = self._site
        self._view = (await site.serving.health()).view
        async with pool.lease() as leased:
            worker = CountedWorker(leased, site.serving.standing)
            environment = {
                "MC_RPC_TIMEOUT_MS": str(int(site.options.deadline_s * 1000)),
                "MC_STORE_CLUSTER_ID": site.options.cluster,
                "GLOG_minloglevel": "2",
            }
            fresh = site.context.entropy.token(8)
            token = await worker.call(Engine.connect, fresh, environment)
            yield worker, token

    # --- taking back ---

    async def revoke(self, key: str) -> None:
        """Take back a put that was begun, also when the caller is being cancelled."""
        self._unrevoked.add(key)
        with anyio.move_on_after(_REVOKE_S, shield=True):
            await self.revoke_left()

    async def revoke_left(self) -> None:
        """Take back what could not be taken back before; never raises for the Master.

        When that client is dead the Master does so itself, after `put_start_discard_timeout_sec`.
        """
        with suppress(ReconcileError):
            for key in tuple(self._unrevoked):
                async with self.owner() as worker:
                    code = await worker.call(Engine.revoke, key)
                if meaning_of(code) is not Meaning.UNKNOWN:
                    self._unrevoked.discard(key)


class CountedWorker:
    """A worker with the client in it, for the sole use of one task; its calls are counted."""

    __slots__ = ("_standing", "_worker", "at_end")

    def __init__(self, worker: WorkerLease, standing: Standing) -> None:
        self._worker = worker
        self._standing = standing
        self.at_end = worker.at_end

    @property
    def buffer(self) -> memoryview:
        """As the worker's."""
        return self._worker.buffer

    async def call(
        self,
        method: Callable[Concatenate[Any, P], R],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """As the worker's."""
        answer = await self._worker.call(method, *args, **kwargs)
        self._standing.answered(method.__name__, answer)
        return answer
