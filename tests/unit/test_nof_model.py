"""Random lives of a nof device against a dictionary."""

import hashlib

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.support.nof_media import (
    FENCE,
    content_of,
    drop_item,
    formatted,
    member,
    read,
    reopened,
    store,
)
from weightctl.adapters.nof.device import Ticket
from weightctl.controller.ports import Conflict, Done, NoCapacity, NoOp

KEYS = st.sampled_from("abcdefgh")
SIZES = st.sampled_from([0, 1, 4096, 9000, 300_000, 900_000])


class NofMachine(RuleBasedStateMachine):
    """`stored` is what a caller may expect: key to (content, instance id)."""

    def __init__(self) -> None:
        super().__init__()
        self.medium = formatted()
        self.device = reopened(self.medium)
        self.stored: dict[str, tuple[bytes, str]] = {}
        self.hidden: dict[str, str] = {}
        self.used = 0

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4, unique=True), size=SIZES)
    def store(self, keys: list[str], size: int) -> None:
        items = [(key, content_of(f"{key}{size}", size)) for key in keys]
        for (key, content), outcome in zip(
            items, store(self.medium, self.device, *items), strict=True
        ):
            if key in self.stored:
                same = self.stored[key][0] == content
                assert isinstance(outcome, NoOp if same else Conflict)
            elif isinstance(outcome, Done):
                assert outcome.instance_id not in self.hidden
                self.stored[key] = (content, outcome.instance_id)
            else:
                assert isinstance(outcome, NoCapacity)
                assert outcome.free_bytes < outcome.needed_bytes

    @rule(key=KEYS)
    def drop(self, key: str) -> None:
        if key in self.stored:
            _, instance = self.stored.pop(key)
            assert isinstance(self.device.drop([drop_item(key, instance)], FENCE)[0], Done)
        assert self.device.drop([drop_item(key, "")], FENCE) == [NoOp()]

    @rule(key=KEYS)
    def quarantine(self, key: str) -> None:
        if key in self.stored:
            _, instance = self.stored.pop(key)
            assert isinstance(self.device.quarantine([drop_item(key, instance)], FENCE)[0], Done)
            self.hidden[instance] = key

    @rule()
    def drop_all_quarantined(self) -> None:
        items = [drop_item(key, instance) for instance, key in self.hidden.items()]
        assert all(isinstance(out, Done) for out in self.device.drop(items, FENCE))
        self.hidden.clear()

    @rule(key=KEYS, size=SIZES)
    def give_up_a_store(self, key: str, size: int) -> None:
        (answer,) = self.device.reserve([member(key, bytes(size))], FENCE)
        if isinstance(answer, Ticket):
            self.device.abort([answer.serial])

    @rule(key=KEYS, size=SIZES)
    def crash_amid_a_store(self, key: str, size: int) -> None:
        self.device.reserve([member(key, bytes(size))], FENCE)
        self.device = reopened(self.medium)

    @rule()
    def restart(self) -> None:
        self.device.close()
        self.device = reopened(self.medium)

    @invariant()
    def every_replica_is_right(self) -> None:
        for key in "abcdefgh":
            expected = self.stored.get(key)
            assert read(self.medium, self.device, key) == (expected[0] if expected else None)
        digests = {item.sha256 for item in self.device.catalog.replicas.values()}
        assert {hashlib.sha256(content).digest() for content, _ in self.stored.values()} <= digests

    @invariant()
    def used_blocks_are_those_of_the_replicas(self) -> None:
        blocks = [
            block
            for item in self.device.catalog.replicas.values()
            for start, count in item.extents
            for block in range(start, start + count)
        ]
        assert len(blocks) == len(set(blocks))
        assert self.device.capacity()[0] == 4096 * len(blocks)


TestNofMachine = NofMachine.TestCase
TestNofMachine.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
