"""Whatever an op-log holds, replay leaves a state that the snapshot validator accepts.

Walks of the model's requests give honest entries; a few of them are then bent, doubled or left out.
Each entry is accepted, and the state is still valid, or refused, and nothing has changed.
"""

from collections import Counter
from dataclasses import fields, is_dataclass, replace
from random import Random
from typing import Any

from tests.model.machine import Driver, WeightMachine, walk
from tests.model.pure_driver import PureDriver
from tests.model.translate import IDENTITIES
from weightctl.controller.core.identity import Identity
from weightctl.controller.core.oplog import Payload, key_of
from weightctl.controller.core.oplog import identity_of as concerned
from weightctl.controller.core.records import (
    Availability,
    Operation,
    Residency,
    ResidencyOperation,
    Snapshot,
)
from weightctl.controller.core.replay import Entry, Replay
from weightctl.controller.core.snapshot import (
    export_snapshot,
    restore_snapshot,
    validate_snapshot,
)
from weightctl.controller.errors import WeightError

SEEDS = 200
WALK_STEPS = 200


class RecordingDriver(PureDriver):
    """Keeps what the walk began with and every entry that it emitted."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self.start = snapshot
        self.payloads: list[Payload] = []

    def applied(self, entry: Entry) -> None:
        self.payloads.append(entry.payload)
        super().applied(entry)


class RecordingMachine(WeightMachine):
    def driver_of(self, snapshot: Snapshot) -> Driver:
        return RecordingDriver(snapshot)


def bent(value: Any, random: Random) -> Any:
    """Give a value of the same type that is near, or of the same family."""
    if isinstance(value, (Availability, Residency, Operation)):
        return random.choice(list(type(value)))
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return random.choice([value + 1, max(value - 1, 0), 0, 2**64 - 1, value + 2])
    if isinstance(value, str):
        return random.choice(["", "completed", "x", value])
    return random.choice([*IDENTITIES.values()])


def bend(payload: Any, random: Random) -> Any:
    """Change one field somewhere inside an entry, or drop its operation."""
    name = random.choice([each.name for each in fields(payload)])
    value = getattr(payload, name)
    if isinstance(value, ResidencyOperation) and random.random() < 0.1:
        return replace(payload, operation=None)
    deeper = is_dataclass(value) and not isinstance(value, Identity)
    changed = bend(value, random) if deeper else bent(value, random)
    return replace(payload, **{name: changed})


def disturbed(payloads: list[Payload], random: Random) -> list[Payload]:
    """Bend, double or drop about one entry in four."""
    out: list[Payload] = []
    for payload in payloads:
        fate = random.random()
        if fate < 0.12:
            out.append(bend(payload, random))
        if fate < 0.18:
            out.append(random.choice(payloads))
        if not 0.18 <= fate < 0.25:
            out.append(payload)
    return out


def replayed(seed: int) -> Counter[bool]:
    """Replay one disturbed walk, checking each step; count what was accepted and refused."""
    random, machine = Random(seed), RecordingMachine()
    walk(machine, random, WALK_STEPS)
    driver = machine.driver
    assert isinstance(driver, RecordingDriver)
    replay = Replay(restore_snapshot(driver.start))
    before, outcomes = export_snapshot(replay.state), Counter[bool]()
    for payload in disturbed(driver.payloads, random):
        expected = replay.expected_sequence
        tenant = concerned(payload).tenant_id
        entry = Entry(sequence=expected, tenant_id=tenant, key=key_of(payload), payload=payload)
        try:
            outcomes[replay.apply(entry)] += 1
        except WeightError:
            outcomes[False] += 1
            assert export_snapshot(replay.state) == before
            assert replay.expected_sequence == expected
        else:
            before = export_snapshot(replay.state)
            validate_snapshot(before)
    return outcomes


def test_replay_of_a_disturbed_log_never_leaves_what_the_validator_refuses() -> None:
    outcomes = Counter[bool]()
    for seed in range(SEEDS):
        try:
            outcomes += replayed(seed)
        except BaseException as error:
            error.add_note(f"in the walk with seed {seed}")
            raise
    assert min(outcomes[True], outcomes[False]) > SEEDS
