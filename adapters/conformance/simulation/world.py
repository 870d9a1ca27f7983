"""The simulated world: disk, tiers, network, clocks, and the process that leads.

Runs one script from beginning to quiet end. The first broken rule ends it; the report names the
oracle. Nothing outside the script decides anything.
"""

import asyncio
import logging
import zlib
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any
from unittest.mock import patch

import anyio

from weightctl.adapters.conformance.faults import Call, Fault, FaultyTier
from weightctl.adapters.conformance.reference import Name
from weightctl.adapters.conformance.simulation.actions import ACTIONS, perform
from weightctl.adapters.conformance.simulation.bounds import policy_of, settings_of
from weightctl.adapters.conformance.simulation.clock import SimClock
from weightctl.adapters.conformance.simulation.disk import Disk
from weightctl.adapters.conformance.simulation.entropy import Chance
from weightctl.adapters.conformance.simulation.judge import Judge
from weightctl.adapters.conformance.simulation.ledger import Ledger
from weightctl.adapters.conformance.simulation.loop import BusyLoopError, SimLoop, run_simulated
from weightctl.adapters.conformance.simulation.media import Recorder, SimMedium, is_good
from weightctl.adapters.conformance.simulation.process import Process
from weightctl.adapters.conformance.simulation.quiet import come_to_rest
from weightctl.adapters.conformance.simulation.report import Report
from weightctl.adapters.conformance.simulation.script import KILLS, LIES, Place, Script
from weightctl.adapters.conformance.simulation.subjects import new_subject
from weightctl.adapters.conformance.simulation.traces import PASS
from weightctl.controller.core.identity import Identity
from weightctl.controller.core.observation import Member
from weightctl.controller.errors import InvariantViolationError, WeightctlError
from weightctl.controller.store import commit, journal

RESTART_S = 2.0
START_S_MAX = 120.0
"""A process that lives runs after so long, whatever its tiers and its disk do."""
UNDER_WAY_S_MAX = 50.0
"""Nothing stays under way in a network for longer."""


class World:
    """Everything that one run consists of."""

    actions = ACTIONS
    process_type = Process
    concurrency = 2
    patience_s = 15.0
    """How long a sent removal may wait for its place after its proof was checked."""

    def __init__(self, script: Script, *, keep_trace: bool = False) -> None:
        setting = script.setting
        self.script = script
        self.keep_trace = keep_trace
        self.specs = {spec.name: spec for spec in setting.tiers}
        self.policy = policy_of(setting.cold_copies, setting.pass_bytes_max)
        self.settings = settings_of(self.concurrency)
        self.subjects = {
            subject.identity: subject
            for subject in (new_subject(number, setting) for number in range(setting.revisions))
        }
        self.by_group = {subject.group_id: subject for subject in self.subjects.values()}
        self._incidents = {(place, number): fault for place, number, fault in script.incidents}
        self.counts: Counter[str] = Counter()
        self.seen: set[tuple[str, ...]] = set()
        self.fired: Counter[str] = Counter()
        self.used: set[Place] = set()
        self.acted: Counter[str] = Counter()
        self.pending: Fault | None = None
        self.calling: Process | None = None
        self.faulty = True
        self.oracle = self.detail = ""
        self.digest = self.passes = 0
        self.trace: list[str] = []
        self.touched_s: dict[tuple[str, str], float] = {}
        """By tier and group: when a primitive last changed something."""
        self.moved_s = 0.0
        """When anything was last written by the loop: a replica or a record."""
        self.processes: list[Process] = []
        self.clogged: dict[str, asyncio.Event] = {}
        self._local: dict[int, set[asyncio.Task[None]]] = {}
        self.last_term = -1
        self.on_change: Callable[[str, Name, str], None] | None = None
        self.on_attempt: Callable[[Identity, int], None] | None = None
        """Set when the faults are over: what hears of each change and each attempt."""
        self.over_s = 0.0
        """When the faults were over."""
        self.acting = 0
        """Actions under way."""
        self.background = 0
        """Requests under way that nobody may be waiting for."""
        self._chance = Chance(f"latency/{script.seed}")

    # --- life -------------------------------------------------------------------------------------

    def run(self) -> Report:
        """The whole script, and then rest."""
        steps, virtual_s = 0, 0.0
        silenced = [logging.getLogger(name) for name in ("weightctl.runtime", "weightctl.store")]
        for logger in silenced:
            logger.addFilter(self._heard)
        try:
            with (
                patch.object(journal, "LOG_ENTRIES_MAX", 4),
                patch.object(commit, "FOLD_ENTRIES", 2),
            ):
                steps, virtual_s = run_simulated(self._main(), self.script.seed)
        except BusyLoopError as error:
            self._found("busy-loop", str(error))
        except Exception as error:  # noqa: BLE001 - a healthy product lets nothing through
            self._found("crashed", repr(error))
        finally:
            for logger in silenced:
                logger.removeFilter(self._heard)
        return Report(
            oracle=self.oracle,
            detail=self.detail,
            fired=self.fired,
            used=frozenset(self.used),
            actions=self.acted,
            reached=self.counts,
            seen=frozenset(self.seen),
            digest=self.digest,
            steps=steps,
            passes=self.passes,
            virtual_s=virtual_s,
            exempt=self.judge.removal.exempt,
            trace=tuple(self.trace),
        )

    async def _main(self) -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self.loop = loop
        self.over = asyncio.Event()
        self.disk = Disk()
        self.ledger = Ledger(self.violate)
        self.judge = Judge(self)
        self.make_media()
        try:
            async with anyio.create_task_group() as self.tasks:
                self.tasks.start_soon(self._play)
                self.tasks.start_soon(self._watch_journals)
                await self.over.wait()
                self.tasks.cancel_scope.cancel()
                for process in self.processes:
                    process.alive = False
        finally:
            self.disk.dispose()
        return loop.steps, loop.time()

    def make_media(self) -> None:
        """The media of the tiers, and the ways to them."""
        self.media = {
            name: SimMedium(
                tier=name,
                epoch=f"{name}-1",
                limit_bytes=spec.limit_bytes,
                nature=spec.nature,
                clock=self.loop,
            )
            for name, spec in self.specs.items()
        }
        self.networks = {name: self._network(name) for name in self.specs}
        for medium in self.media.values():
            medium.watcher = self.judge

    async def _play(self) -> None:
        began_s = self.loop.time()
        await self.start_process()
        for action in self.script.actions:
            await asyncio.sleep(max(began_s + action.at_s - self.loop.time(), 0.0))
            self.acted[action.name] += 1
            self.note(f"action {action.name} {action.of} {action.amount}")
            self.acting += 1
            self.tasks.start_soon(perform, self, action)
        await asyncio.sleep(self.script.linger_s)
        await self.come_to_rest()
        self.over.set()

    async def come_to_rest(self) -> None:
        """End all faults, and see the world converge."""
        await come_to_rest(self)

    def _network(self, name: str) -> FaultyTier:
        names = list(self.specs)
        other = names[(names.index(name) + 1) % len(names)]
        spec = self.specs[name]
        return FaultyTier(
            Recorder(self.media[name], hot=spec.hot, profile=spec.profile),
            self._next_fault,
            clock=SimClock(self.loop),
            spawn=partial(self._spawn, local=spec.local),
            detached=not spec.local,
            foreign=Recorder(self.media[other], hot=self.specs[other].hot),
            damage=partial(self._damage, name),
        )

    async def start_process(self) -> Process:
        """Start the next process and wait until it runs."""
        process = self.process_type(self, len(self.processes) + 1)
        self.processes.append(process)
        self.tasks.start_soon(process.run)
        with anyio.move_on_after(START_S_MAX) as starting:
            await process.started.wait()
        if starting.cancelled_caught:
            if process.alive:
                self.violate("stuck", f"process {process.number} does not start")
            return process
        if process.alive and process.store.term <= self.last_term:
            self.violate("term", f"a new process has term {process.store.term} again")
        self.last_term = process.store.term if process.alive else self.last_term
        return process

    @property
    def leader(self) -> Process | None:
        """The process that can be asked for something now."""
        return next((process for process in reversed(self.processes) if process.ready), None)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something; looking costs nothing on virtual time."""
        while True:
            if condition():
                return
            await asyncio.sleep(0.5)

    async def some_leader(self) -> Process:
        """The process that can be asked, as soon as there is one."""
        await self.until(lambda: self.leader is not None)
        leader = self.leader
        assert leader is not None
        return leader

    def killed(self, process: Process) -> None:
        """A process has died; somebody starts it again."""
        for task in self._local.pop(process.number, set()):
            task.cancel()
        for name, spec in self.specs.items():
            forgets = spec.profile is not None and not spec.nature.persistent
            if forgets and spec.local and process.number % 2 == 0:
                self.media[name].forget(self.loop.time(), epoch=True)
        if not process.deposed:
            self.tasks.start_soon(self._restart)

    async def _restart(self) -> None:
        await asyncio.sleep(RESTART_S)
        if self.leader is None:
            await self.start_process()

    async def take_over(self, deposed: Process, seconds: float) -> None:
        """Another process leads while the deposed one still believes that it does."""
        await asyncio.sleep(0.2)
        if self.leader is None:
            await self.start_process()
        await asyncio.sleep(seconds)
        deposed.kill()

    async def _watch_journals(self) -> None:
        """A supervisor outside restarts a process whose journal is poisoned."""
        while True:
            await asyncio.sleep(3.0)
            if self.leader is not None and not self.leader.store.healthy:
                self.leader.kill()

    def process_failed(self, process: Process, error: Exception) -> None:
        """A process ended by itself, which none does without a broken invariant."""
        kind = "assertion" if isinstance(error, InvariantViolationError) else "process-ended"
        self.violate(kind, f"process {process.number}: {error!r}")

    def _heard(self, record: logging.LogRecord) -> bool:
        """What the product logs: an error that is none of its own is a bug; nothing is printed."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, WeightctlError | OSError):
            leader = self.calling
            if leader is None or leader.alive:
                self.violate("internal-error", f"{record.getMessage()}: {error!r}")
        return False

    # --- what the ports ask -----------------------------------------------------------------------

    async def latency(self) -> None:
        """Every way takes a while."""
        if self.script.setting.latency_s:
            await asyncio.sleep(self._chance.random() * self.script.setting.latency_s)
        else:
            await asyncio.sleep(0)

    async def gate(self, tier: str) -> None:
        """A clogged tier answers nobody until it is released."""
        event = self.clogged.get(tier)
        if event is not None:
            await event.wait()

    def incident(self, place: str) -> Fault | None:
        """What goes wrong at this call, counting it."""
        number = self.counts[place]
        self.counts[place] += 1
        self.note(f"{place} {number}")
        fault = self._incidents.get((place, number)) if self.faulty else None
        if fault is not None:
            self.fired[f"{place.rpartition('.')[2]}:{fault.kind}"] += 1
            self.used.add((place, number))
            self.note(f"  {fault.kind} {fault.amount}")
        return fault

    def _next_fault(self, tier: str, call: Call) -> Fault | None:
        if call in (Call.OPEN, Call.READ):
            fault = self.incident(f"{tier}.{call}")
            if fault is not None and fault.kind in KILLS and self.calling is not None:
                self.calling.kill()
            return fault
        fault, self.pending = self.pending, None
        return fault

    def tell(self, fault: Fault | None, tier: str) -> None:
        """An answer has been given; a false one is remembered for the pass that got it."""
        trace = PASS.get()
        if fault is not None and fault.kind in LIES and trace is not None:
            trace.lied.add(tier)

    def _spawn(self, work: Coroutine[Any, Any, None], *, local: bool) -> None:
        task = self.loop.create_task(self._background(work))
        task.add_done_callback(lambda _: work.close())  # it may never have begun
        if local and self.calling is not None:
            tasks = self._local.setdefault(self.calling.number, set())
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _background(self, work: Coroutine[Any, Any, None]) -> None:
        PASS.set(None)
        self.background += 1
        try:
            with anyio.move_on_after(UNDER_WAY_S_MAX):
                await work
        finally:
            self.background -= 1

    def _damage(self, tier: str, member: Member, kind: str) -> None:
        medium = self.media[tier]
        stored = medium.seen(member)
        if stored is not None:
            name = (member.group_id, member.key)
            medium.rot(name, stored, self.loop.time(), kind)

    def committed(self, process: Process) -> None:
        """A transaction is durable: read the new entries back and judge them."""
        entries = self.disk.new_entries()
        if entries:
            self.moved_s = self.loop.time()
        for entry in entries:
            self.note(f"entry {entry.sequence} {entry.entry_type} {entry.key[:24]}")
        self.judge.committed(process, entries)

    # --- the truth --------------------------------------------------------------------------------

    def good_copies(self, member: Member) -> list[str]:
        """Tiers with a good, visible copy; also those that give no answer now."""
        name: Name = (member.group_id, member.key)
        return [
            tier
            for tier, medium in self.media.items()
            if any(is_good(stored, member) for stored in medium.stored.get(name, ()))
        ]

    def known_wrong(self, identity: Identity) -> bool:
        """Whether some copy of the revision does not have its bytes."""
        members = self.subjects[identity].members
        return any(
            name[1] in members and not is_good(stored, members[name[1]])
            for medium in self.media.values()
            for name, stored in medium.every()
            if name[0] == self.subjects[identity].group_id
        )

    def changed(self, tier: str, name: Name, what: str) -> None:
        """A primitive has changed what a tier holds."""
        self.moved_s = self.loop.time()
        self.touched_s[tier, name[0]] = self.moved_s
        self.note(f"{what} {tier} {name[1][-12:]}")
        if self.on_change is not None:
            self.on_change(tier, name, what)

    # --- what went wrong --------------------------------------------------------------------------

    def violate(self, oracle: str, detail: str) -> None:
        """A rule is broken: the first one is kept and ends the run."""
        self._found(oracle, detail)
        self.over.set()

    def _found(self, oracle: str, detail: str) -> None:
        if not self.oracle:
            self.oracle, self.detail = oracle, detail
            self.note(f"VIOLATION {oracle}: {detail}")

    def note(self, text: str) -> None:
        """One line of the history; its running digest tells two runs apart."""
        line = f"{self.loop.time():.3f} {text}"
        self.digest = zlib.crc32(line.encode(), self.digest)
        if self.keep_trace:
            self.trace.append(line)


def simulate(script: Script, *, keep_trace: bool = False) -> Report:
    """Run a script."""
    return World(script, keep_trace=keep_trace).run()
