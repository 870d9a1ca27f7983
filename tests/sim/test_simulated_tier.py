"""The simulated tier passes the contract suite of the real ones, seen as by a simulated process."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

import pytest

from tests.contract.test_reference import Gate, ReferenceHarness
from weightctl.adapters.conformance.faults import FaultyTier
from weightctl.adapters.conformance.simulation.media import Recorder, SimMedium
from weightctl.adapters.conformance.simulation.process import ProcessTier
from weightctl.adapters.conformance.suite.material import HOLDER
from weightctl.adapters.conformance.suite.tier_suite import TierSuite
from weightctl.controller.clock import SystemClock
from weightctl.controller.ports import Tier


class _Deaf:
    """A judge that hears nothing."""

    @contextmanager
    def sending(self, *_: object) -> Iterator[None]:
        yield

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class _Calm:
    """A world in which nothing goes wrong but a shut gate, and a process that stays alive."""

    def __init__(self, gate: Gate) -> None:
        self.judge = _Deaf()
        self.world = self
        self._gate = gate

    async def gate(self, tier: str) -> None:
        await asyncio.sleep(0)
        await self._gate.passed()

    async def latency(self) -> None:
        await asyncio.sleep(0)

    def incident(self, place: str) -> None:
        """Nothing goes wrong."""

    def tell(self, *_: object) -> None:
        """Nothing false was told."""

    def check(self) -> None:
        """It lives."""


def _spawn(work: Coroutine[Any, Any, None]) -> object:
    return asyncio.get_running_loop().create_task(work)


class SimulatedHarness(ReferenceHarness):
    """The reference harness over a simulated medium, behind the network and a process's eyes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._medium = self._sim = SimMedium(tier="tier", epoch="tier-1")

    def tier(self, *, capacity_bytes: int | None = None, read_only: bool = False) -> Tier:
        if capacity_bytes is not None:
            self._sim.limit_bytes = capacity_bytes
        return self.tier_of(HOLDER, read_only=read_only)

    def tier_of(self, holder: str, *, adopt: bool = False, read_only: bool = False) -> Tier:
        if read_only:
            pytest.skip("a simulated medium needs no setting up")
        recorder = Recorder(self._sim, hot=False, holder=holder, adopt=adopt)
        network = FaultyTier(recorder, lambda *_: None, clock=SystemClock(), spawn=_spawn)
        process: Any = _Calm(self.gate)
        return _Entered(process, network)

    def begin_anew(self) -> None:
        self._medium = self._sim = SimMedium(tier="tier", epoch="tier-anew")

    def fingerprint(self) -> object:
        """Everything but the fence that was asked with last."""
        names = [field.name for field in fields(self._sim) if field.name != "fence"]
        return repr([(name, getattr(self._sim, name)) for name in names])


class _Entered(ProcessTier):
    """A simulated tier outlives its process; a suite's tier begins and ends with its test."""

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._inner.__aexit__(*exc_info)


@pytest.mark.one_loop
class TestSimulatedTier(TierSuite):
    answers_s = 0.5

    @pytest.fixture
    def harness(self, tmp_path: Path) -> SimulatedHarness:
        return SimulatedHarness(tmp_path)
