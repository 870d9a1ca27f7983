"""Small objects that say something by being there: markers and claims.  Layer: a tier; on the loop.

They are put through `master` and seen through `admin`, so that putting one also proves that both
are one and the same Master.  Invariant: what was put is seen before it counts, and what is not
seen is taken back; while the two differ, at most one such object is left behind.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from weightctl.adapters.mooncake.client.codes import Meaning, meaning_of, told
from weightctl.adapters.mooncake.client.engine import Engine
from weightctl.adapters.mooncake.master.replicas import is_absent, is_there
from weightctl.adapters.mooncake.master.serving import threaded
from weightctl.controller.errors import ReconcileError, TransientError, require

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weightctl.adapters.mooncake.client.clients import Clients, CountedWorker
    from weightctl.adapters.mooncake.master.replicas import Entry
    from weightctl.adapters.mooncake.site import Site

OURS = "weightctl-"
"""What the key of each such object begins with."""
POLL_S = 0.1
LOOKS = 5
"""What was put is there at once; a Master that is busy gets a little longer."""
PAUSE_S = (1.0, 60.0)
"""Least and longest pause after two different Masters were seen."""


class SmallObjects:
    """Puts and removes objects of one byte for one connection.

    in_sessions: whether they are put as objects are; beside `root_fs_dir` what is put in a session
    cannot be removed for long.
    """

    def __init__(self, site: Site, clients: Clients, in_sessions: Callable[[], bool]) -> None:
        self._site = site
        self._clients = clients
        self._in_sessions = in_sessions
        self._clock = site.context.clock
        self._unseen: set[str] = set()
        """Put, not seen, and not taken back yet."""
        self._pause_s = 0.0
        self._not_before_s = 0.0

    async def put(self, key: str) -> None:
        """Put one that stays in memory, and see it.  Raises ReconcileError."""
        if self._pause_s and self._clock.monotonic_s() < self._not_before_s:
            await self._take_back()
            raise self._crossed()
        await self._take_back()
        self._unseen.add(key)
        await self._put(key)
        if await self._is_seen(key):
            self._unseen.discard(key)
            self._pause_s = 0.0
            return
        await self._take_back()
        self._pause_s = min(max(2 * self._pause_s, PAUSE_S[0]), PAUSE_S[1])
        self._not_before_s = self._clock.monotonic_s() + self._pause_s
        raise self._crossed()

    async def remove(self, keys: Sequence[str]) -> list[int]:
        """Remove some; Mooncake's code for each.  Raises ReconcileError."""
        require(all(key.startswith(OURS) for key in keys), f"{keys} are not weightctl's own")
        async with self._clients.owner() as worker:
            return await worker.call(Engine.remove, list(keys))

    async def _put(self, key: str) -> None:
        async with self._clients.owner() as worker:
            put = self._in_session if self._in_sessions() else self._at_once
            code = await put(worker, key)
        if code != 0 and meaning_of(code) is not Meaning.EXISTS:
            raise TransientError(
                self._site.name,
                f"weightctl's own {key} could not be put there: {told(code)}",
                "let at least one host with free memory be up; it is tried again",
            )

    async def _in_session(self, worker: CountedWorker, key: str) -> int:
        code = await worker.call(Engine.begin, key, 1, key, data_type=0, segment="")
        if code == 0:
            worker.buffer[0] = 0
            code = min(await worker.call(Engine.write, key, 0, 1), 0)
        return code or await worker.call(Engine.end, key)

    async def _at_once(self, worker: CountedWorker, key: str) -> int:
        worker.at_end(Engine.let_go_of, key)
        await worker.call(Engine.hold, key, 1)
        return await worker.call(Engine.put_held, key, key, data_type=0, segment="")

    async def _is_seen(self, key: str) -> bool:
        """Whether `admin` shows it.  Raises TransientError when that cannot be told."""
        admin, entry = self._site.serving.admin, None

        def ask() -> Entry | None:
            return admin.query(admin.health(), [key]).get(key)

        for _ in range(LOOKS):
            entry = await threaded(ask)
            if is_there(entry):
                return True
            await self._clock.sleep(POLL_S)
        if not is_absent(entry):
            why = "it is being written, or the Master did not answer for it"
            raise TransientError(f"{key} cannot be seen", why, "it is looked at again")
        return False

    async def _take_back(self) -> None:
        """Remove what was not seen; what cannot be removed now is tried with the next one."""
        with suppress(ReconcileError):
            left = sorted(self._unseen)
            for key, code in zip(left, await self.remove(left) if left else (), strict=True):
                if code == 0 or meaning_of(code) is Meaning.ABSENT:
                    self._unseen.discard(key)

    def _crossed(self) -> TransientError:
        options = self._site.options
        asked = ", ".join(options.admin) or f"the port {options.admin_port} of the leader"
        return TransientError(
            self._site.name,
            f"`admin` ({asked}) and `master` ({options.master}) are different Masters: what is put"
            " through one is not shown by the other",
            "set `admin` or `admin_port` in [mooncake] to the --metrics_port of that same Master",
        )
