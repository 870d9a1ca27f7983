"""The machine's clock is set while leases are live; deadlines go on by the time that passes."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.loop_rig import IDENTITY, contents, members_of, reference_of
from weightctl.controller import clock as clocks
from weightctl.controller.clock import SLEW_SHARE, SystemClock, SystemEntropy
from weightctl.controller.core.records import Residency
from weightctl.controller.errors import ErrorCode, WeightError
from weightctl.controller.store.store import WeightMetadataStore

START_S = 1_700_000_000
HOUR_S, DAY_S = 3600, 86_400


class Machine:
    """A machine's two clocks, set by the test."""

    def __init__(self) -> None:
        self.wall_s = float(START_S)
        self.monotonic_s = 50.0

    def passes(self, seconds: float) -> None:
        self.wall_s += seconds
        self.monotonic_s += seconds

    @property
    def wall_ms(self) -> int:
        return int(self.wall_s * 1000)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    faked = SimpleNamespace(
        time_ns=lambda: int(made.wall_s * 1e9),
        monotonic_ns=lambda: int(made.monotonic_s * 1e9),
        monotonic=lambda: made.monotonic_s,
    )
    monkeypatch.setattr(clocks, "time", faked)
    return made


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S, 20 * HOUR_S, -20 * HOUR_S, 2, -2])
def test_a_step_of_the_clock_is_followed_slowly_and_never_backwards(
    machine: Machine, step_s: int
) -> None:
    clock = SystemClock()
    before_ms = clock.wall_ms()
    machine.wall_s += step_s
    assert clock.wall_ms() == before_ms
    last_ms = before_ms
    for _ in range(60):
        machine.passes(1.0)
        now_ms = clock.wall_ms()
        assert now_ms >= last_ms
        last_ms = now_ms
    passed_ms = last_ms - before_ms
    assert abs(passed_ms - 60_000) <= 60_000 * SLEW_SHARE + 1
    for _ in range(1000):
        machine.passes(abs(step_s))
        clock.wall_ms()
    assert abs(clock.wall_ms() - machine.wall_ms) <= 1, "it arrives"


@pytest.mark.parametrize("step_s", [30 * 365 * DAY_S, -2 * DAY_S])
def test_a_clock_that_had_not_been_set_is_followed_at_once(machine: Machine, step_s: int) -> None:
    clock = SystemClock()
    machine.wall_s += step_s
    assert abs(clock.wall_ms() - machine.wall_ms) <= 1


def test_durations_know_nothing_of_the_wall(machine: Machine) -> None:
    clock = SystemClock()
    machine.wall_s += HOUR_S
    assert clock.monotonic_s() == machine.monotonic_s


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
async def test_a_lease_lives_as_long_as_it_was_given_whatever_the_clock_is_set_to(
    tmp_path: Path, machine: Machine, step_s: int
) -> None:
    clock = SystemClock()
    async with WeightMetadataStore.open(tmp_path, clock=clock, entropy=SystemEntropy(1)) as store:
        lease_id = await _leased(store)
        machine.wall_s += step_s
        machine.passes(55.0)
        assert [lease.lease_id for lease in store.leases(identity=IDENTITY)] == [lease_id]
        with pytest.raises(WeightError) as refused:
            await _evict(store)
        assert refused.value.code is ErrorCode.BUSY
        assert await store.expire_leases() == ()
        machine.passes(10.0)
        assert store.leases(identity=IDENTITY) == ()
        assert len(await store.expire_leases()) == 1
        await _evict(store)


@pytest.mark.parametrize("step_s, alive", [(0, True), (30, True), (70, False), (-30, True)])
async def test_a_restart_maps_stored_deadlines_to_the_clock_as_it_is_then(
    tmp_path: Path, machine: Machine, step_s: int, alive: bool
) -> None:
    entropy = SystemEntropy(1)
    async with WeightMetadataStore.open(tmp_path, clock=SystemClock(), entropy=entropy) as store:
        await _leased(store)
    machine.monotonic_s = 3.0  # a boot
    machine.wall_s += step_s
    async with WeightMetadataStore.open(tmp_path, clock=SystemClock(), entropy=entropy) as store:
        assert bool(store.leases(identity=IDENTITY)) is alive
        (record,) = store.records()
        assert record.updated_at_ms >= START_S * 1000, "times of records never go back"


async def _leased(store: WeightMetadataStore) -> int:
    """A published revision under a lease of a minute."""
    data = contents(IDENTITY, 1)
    reference = reference_of(IDENTITY, data)
    await store.begin_import(
        identity=IDENTITY,
        expected_payload_count=reference.payload_count,
        expected_logical_bytes=reference.logical_bytes,
    )
    await store.directory.register(IDENTITY, members_of(IDENTITY, data))
    await store.commit_import(identity=IDENTITY, expected_metadata_generation=1, manifest=reference)
    lease = await store.acquire_lease(
        identity=IDENTITY, expected_metadata_generation=2, holder="reader", ttl_ms=60_000
    )
    return lease.lease_id


async def _evict(store: WeightMetadataStore) -> None:
    await store.start_residency_operation(
        identity=IDENTITY,
        expected_metadata_generation=2,
        target_residency=Residency.COLD,
        member_count=2,
    )
