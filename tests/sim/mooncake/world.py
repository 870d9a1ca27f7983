"""The whole sidecar beside an imitated Mooncake, in virtual time.

World, users, judges and script are those of the simulation of the loop; in the place of its media
stands a cluster with hosts, Masters and strangers, and in the place of its process everything that
`weightctl run` opens, with the real adapter. One script is one run.
"""

import asyncio
import contextlib
import logging
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from tests.sim.mooncake.cluster import Cluster
from tests.sim.mooncake.disasters import ACTIONS, end_faults
from tests.sim.mooncake.network import ETCD, Network
from tests.sim.mooncake.oracles import Oracles
from tests.sim.mooncake.process import JudgedTier, MooncakeProcess
from tests.sim.mooncake.rest import come_to_rest
from tests.sim.mooncake.rival import rival
from tests.sim.mooncake.seams import PROCESS, here, machine
from tests.sim.mooncake.threads import Threads
from tests.sim.mooncake.views import View
from tests.support.mooncake.imitation import Paces
from weightctl.adapters.conformance.simulation.loop import SimTask
from weightctl.adapters.conformance.simulation.process import Process
from weightctl.adapters.conformance.simulation.report import Report
from weightctl.adapters.conformance.simulation.script import Script, TierSpec
from weightctl.adapters.conformance.simulation.traces import PASS
from weightctl.adapters.conformance.simulation.world import World
from weightctl.controller import wiring
from weightctl.controller.config.loading import Config, TierConfig, load
from weightctl.controller.core.tiers import Capabilities, TierProfile
from weightctl.controller.ports import Tier
from weightctl.controller.runtime.holding import Owner

LEASE_TTL_S = 5.0
PACES = Paces(lease_ttl_s=LEASE_TTL_S, offload_s=1.0, promote_s=0.5, count_s=1.0)
SETTINGS = (
    "policy.settle_s=20",
    "policy.evidence_max_age_s=3600",
    "resync.working_s=30",
    "resync.published_s=120",
)
DEADLINE_S = 3.0
_PLUGINS = wiring.plugin_points()
# That a place is used again matters between two media only: here both tiers are one.
_CAPABILITIES = Capabilities(shared=True, atomic_publish=True, delete_is_immediate=False)
_PROFILE = TierProfile(name="mem", kind="mooncake-memory", hot=True, capabilities=_CAPABILITIES)
TIERS = (
    TierSpec(name="mem", hot=True, local=False, profile=_PROFILE),
    TierSpec(
        name="disk",
        local=False,
        profile=replace(
            _PROFILE,
            name="disk",
            kind="mooncake-local-disk",
            hot=False,
            capabilities=replace(_CAPABILITIES, persistent=True),
        ),
    ),
)


class MooncakeWorld(World):
    """Everything that one run consists of."""

    actions = ACTIONS | {"rival": rival}
    process_type = MooncakeProcess
    patience_s = 600.0

    def __init__(
        self, script: Script, *, masters: int = 1, hosts: int = 2, keep_trace: bool = False
    ) -> None:
        super().__init__(script, keep_trace=keep_trace)
        self.config = _config(masters)
        self.policy = self.config.policy()
        self.settings = wiring.runtime_settings(self.config)
        self.members = {
            key: (subject.group_id, member)
            for subject in self.subjects.values()
            for key, member in subject.members.items()
        }
        self.threads = Threads()
        self.report: Report
        self.said: Counter[str] = Counter()
        """Log lines of the product, by their fixed text."""
        self.faced: Counter[str] = Counter()
        """What has happened, by its name."""
        self._masters, self._hosts = masters, hosts

    def run(self) -> Report:
        with (
            tempfile.TemporaryDirectory(prefix="mooncake-sim-", dir=_ramdisk()) as folder,
            machine(self.threads),
            _wired(),
        ):
            self.config = replace(self.config, values={**self.config.values, "state_dir": folder})
            return super().run()

    async def _main(self) -> tuple[int, float]:
        asyncio.get_running_loop().set_task_factory(_new_task)
        try:
            return await super()._main()
        finally:
            for process in self.processes:
                process.kill()
            await self.threads.close()

    def make_media(self) -> None:
        self.cluster = Cluster(self.loop.time, PACES, self._hosts)
        self.cluster.happened = self.happened
        self.network = Network(self, self.cluster, self._masters)
        self.oracles = Oracles(self)
        self.media = {name: View(self, name) for name in self.specs}  # type: ignore[misc]
        self.networks = {}

    def happened(self, what: str) -> None:
        """Something that the world does to a sidecar has happened."""
        self.faced[what] += 1
        self.note(f"it happened: {what}")

    async def come_to_rest(self) -> None:
        await end_faults(self)
        await come_to_rest(self)

    def committed(self, process: Process) -> None:
        before = dict(self.ledger.records)
        super().committed(process)
        self.oracles.written(before, self.ledger.records)

    def _heard(self, record: logging.LogRecord) -> bool:
        self.said[record.msg] += 1
        return super()._heard(record)

    def killed(self, process: Any) -> None:
        if process.deposed or self.over.is_set():
            return
        # It may be one of its own tasks, amid a pass, that ends it.
        outside, idle = PROCESS.set(None), PASS.set(None)
        self.tasks.start_soon(self._restart)
        PROCESS.reset(outside)
        PASS.reset(idle)


def _config(masters: int) -> Config:
    options: dict[str, object] = {
        "admin": ",".join(f"master{number}:9003" for number in range(masters)),
        "master": f"etcd://{ETCD}" if masters > 1 else "master0:50051",
        "lease_ttl_s": LEASE_TTL_S,
        "deadline_s": DEADLINE_S,
        "appear_s": 8.0,
        "parking_bytes": "64MiB",
    }
    tiers = (
        TierConfig(name="mem", kind="mooncake-memory", options=options, limits={"concurrency": 2}),
        TierConfig(
            name="disk",
            kind="mooncake-local-disk",
            options={**options, "capacity_bytes": "1GiB"},
            limits={"concurrency": 2},
        ),
    )
    loaded = load(environ={}, assignments=SETTINGS, state_dir="/nowhere")
    return replace(loaded, tiers=tiers, tiers_origin="the simulation")


def _ramdisk() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _new_task(loop: asyncio.AbstractEventLoop, work: Any, **kwargs: Any) -> SimTask:
    task = SimTask(work, loop=loop, **kwargs)
    context = kwargs.get("context")
    process = PROCESS.get() if context is None else context.get(PROCESS)
    if process is not None:
        process.took_task(task)
    return task


def _judged(tier: Tier) -> Tier:
    process = here()
    return JudgedTier(process, tier) if process.is_judged else tier


@contextlib.contextmanager
def _wired() -> Iterator[None]:
    """The composition root takes from the machine what a simulated process has."""
    with patch.multiple(
        wiring,
        SystemClock=lambda: here().clock,
        SystemEntropy=lambda: here().entropy,
        WeightMetadataStore=SimpleNamespace(open=lambda *_, **__: here().open_store()),
        Controller=lambda store, tiers, **more: here().controller_of(store, tiers, **more),
        plugin_points=lambda: _PLUGINS,
        owner_of=lambda name, point: Owner(name=name, plugin=point.value),
        _seams=lambda _: wiring._Seams(tier=_judged),
    ):
        yield


def simulate(script: Script, *, masters: int = 1, keep_trace: bool = False) -> MooncakeWorld:
    """Run a script; the world as it was left, with its report."""
    world = MooncakeWorld(script, masters=masters, keep_trace=keep_trace)
    world.report = world.run()
    return world
