"""Cases of a whole life under the real loop while calls to the tier fail.  Layer: conformance.

The store, the planner, the loop and the tier are the real ones; between loop and tier
stands the fault injector, which follows a seed.  When the faults are over everything converges, no
byte is lost, and nothing is left.  `histories` goes through far more of what can happen, with every
oracle, but with a simulated tier that only has this one's profile; that this tier's own code comes
through is shown here.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import anyio
import pytest
from anyio import to_thread

from weightctl.adapters.conformance.faults import ERRORS, Call, Fault, FaultyTier, Kind
from weightctl.adapters.conformance.grades import Grade
from weightctl.adapters.conformance.reference import ReferenceMedium, ReferenceTier
from weightctl.adapters.conformance.revisions import members_of, reference_of
from weightctl.adapters.conformance.suite.cases import TierCases
from weightctl.adapters.conformance.suite.harness import TierHarness
from weightctl.adapters.conformance.suite.haste import HastyClock, Leisurely
from weightctl.adapters.conformance.suite.material import content_of, read_all, source_of
from weightctl.controller.clock import SystemEntropy
from weightctl.controller.core.identity import (
    Identity,
    manifest_key,
    payload_prefix,
)
from weightctl.controller.core.observation import Member
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import (
    Availability,
    Operation,
    Residency,
)
from weightctl.controller.ports import Done, DropItem, Fence, NoOp, Outcome, StoreItem, Tier
from weightctl.controller.runtime.controller import Controller
from weightctl.controller.runtime.settings import ExecutorOptions, ResyncOptions, RuntimeSettings
from weightctl.controller.store.store import WeightMetadataStore

IDENTITY = Identity(namespace="check", resource_id="model", revision="v1", weight_generation=1)
SIZES_BYTES = (1, 4096, 100_000, 300_000)
SEEDS = (1, 2)
FAULTS_MAX = 12
"""In one phase of a life; every second call goes wrong until they are used up."""
LIFE_S = 90.0
"""Bound of a whole life; less than a check gives a case, so that it tells what it waits for."""

IN_BATCHES = (
    *(Fault(kind=Kind.ERROR, amount=number) for number in range(len(ERRORS))),
    *(Fault(kind=Kind.FAIL_AFTER, amount=number) for number in range(len(ERRORS))),
    Fault(kind=Kind.PART),
    Fault(kind=Kind.CUT, amount=1),
    Fault(kind=Kind.SURPLUS),
    Fault(kind=Kind.LOSE_ANSWER),
    Fault(kind=Kind.LOSE_REQUEST),
    Fault(kind=Kind.DOUBLE, amount=1.0),
    Fault(kind=Kind.BUSY, amount=2.0),
)
IN_LOOKS = (
    Fault(kind=Kind.UNKNOWN),
    Fault(kind=Kind.CUT),
    Fault(kind=Kind.SURPLUS),
    Fault(kind=Kind.LOSE_ANSWER),
    *(Fault(kind=Kind.ERROR, amount=number) for number in range(len(ERRORS))),
)
IN_STORES = (*IN_BATCHES, Fault(kind=Kind.FLIP), Fault(kind=Kind.NO_SPACE, amount=1000))
SETTINGS = RuntimeSettings(
    executor=ExecutorOptions(deadline_s=10.0), resync=ResyncOptions(working_s=5.0), park_s=5.0
)


class Script:
    """Which call goes wrong and how, by a seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._calls = 0
        self.left = 0

    def __call__(self, tier: str, call: Call) -> Fault | None:
        """The next fault."""
        self._calls += 1
        digest = hashlib.sha256(f"{self._seed}/{self._calls}/{tier}/{call}".encode()).digest()
        if not self.left or digest[0] % 2:
            return None
        match call:
            case Call.STORE:
                known: Sequence[Fault] = IN_STORES
            case Call.DROP | Call.QUARANTINE | Call.VERIFY:
                known = IN_BATCHES
            case Call.OBSERVE:
                known = IN_LOOKS
            case _:
                known = tuple(fault for fault in IN_LOOKS if fault.kind == Kind.ERROR)
        self.left -= 1
        return known[int.from_bytes(digest[1:3], "big") % len(known)]


class Partner(ReferenceTier):
    """The other tier of the life; nothing leaves it that the tier under test does not hold."""

    def __init__(self, medium: ReferenceMedium, tested: Tier, *, hot: bool) -> None:
        super().__init__("partner", medium, hot=hot)
        self._tested = tested
        self.lost: list[str] = []
        self.ending = False

    async def drop(self, batch: Sequence[DropItem], fence: Fence) -> Sequence[Outcome]:
        """As the port, and each time a look whether it was the last good copy."""
        for item in batch:
            if not self.ending and not await _reads(self._tested, item.member):
                self.lost.append(item.member.key)
        return await super().drop(batch, fence)


async def _reads(tier: Tier, member: Member) -> bool:
    """Whether the tier gives the member's bytes; a tier that fails now gives them later."""
    content = await read_all(tier, member)
    return hashlib.sha256(content).digest() == member.sha256


@dataclass(frozen=True, slots=True)
class Life:
    """One revision between two tiers."""

    tested: Tier
    partner: Partner
    store: WeightMetadataStore
    controller: Controller
    script: Script
    contents: dict[Member, bytes]

    async def reaches(self, residency: Residency) -> None:
        """An operation under faults ends, after they are over, where it should."""
        record = (await self.store.get(identity=IDENTITY)).metadata
        await self.store.start_residency_operation(
            identity=IDENTITY,
            expected_metadata_generation=record.metadata_generation,
            target_residency=residency,
            member_count=len(self.contents),
        )
        await self.converges()
        record = (await self.store.get(identity=IDENTITY)).metadata
        assert (record.availability, record.residency) == (Availability.READY, residency)
        assert record.operation is Operation.NONE
        assert not self.partner.lost, f"dropped before the tier held it: {self.partner.lost}"

    async def converges(self) -> None:
        """With faults first and without them in the end."""
        self.script.left = FAULTS_MAX
        await self.controller.wait_converged(IDENTITY)
        self.script.left = 0

    async def wanted(self) -> str:
        """What the loop is about."""
        record = (await self.store.get(identity=IDENTITY)).metadata
        states = (record.operation, record.availability, record.residency)
        return "the revision is " + ", ".join(state.name for state in states if state.value)

    async def holds(self, tier: Tier) -> None:
        """Every byte is there."""
        for member, content in self.contents.items():
            assert await read_all(tier, member) == content


class ContractOfLife(TierCases):
    """Filled, emptied and deleted by the loop, through all kinds of faults."""

    grade = Grade.SILVER
    life_s: ClassVar[float] = LIFE_S
    """Raised by runners of slow media."""

    @pytest.mark.parametrize("seed", SEEDS)
    async def test_the_loop_stays_right_while_calls_fail(
        self, harness: TierHarness, seed: int
    ) -> None:
        await live(harness, seed, self.life_s)


async def live(harness: TierHarness, seed: int, life_s: float = LIFE_S) -> None:
    """One whole life, with the faults of a seed.  Raises AssertionError, naming what is wrong."""
    wanted = ""
    async with lived(harness, seed) as life:
        with anyio.move_on_after(life_s) as patience:
            await _live(life)
        if patience.cancelled_caught:
            wanted = await life.wanted()
    assert not wanted, f"after {life_s:g} s the loop has not come to rest: {wanted}"


async def _live(life: Life) -> None:
    hot = life.tested.profile.hot
    there, back = (Residency.HOT, Residency.COLD) if hot else (Residency.COLD, Residency.HOT)
    await life.reaches(there)
    await life.holds(life.tested)
    await life.reaches(back)
    await life.holds(life.partner)
    life.partner.ending = True
    record = (await life.store.get(identity=IDENTITY)).metadata
    await life.store.delete_revision(
        identity=IDENTITY, expected_metadata_generation=record.metadata_generation
    )
    await life.converges()
    record = (await life.store.get(identity=IDENTITY)).metadata
    assert record.availability is Availability.DELETED
    assert not await life.tested.inventory()


@asynccontextmanager
async def lived(harness: TierHarness, seed: int) -> AsyncIterator[Life]:
    """A revision that is published in the partner, and the loop over both tiers."""
    clock, entropy = HastyClock(), SystemEntropy()
    script = Script(seed)
    state = harness.folder / "life"
    await to_thread.run_sync(partial(state.mkdir, parents=True))
    async with (
        anyio.create_task_group() as tasks,
        WeightMetadataStore.open(state, clock=clock, entropy=entropy) as store,
        harness.tier() as real,
    ):
        tested = Leisurely(real, clock)
        partner = Partner(ReferenceMedium(), tested, hot=not tested.profile.hot)
        faulty = FaultyTier(
            tested,
            script,
            clock=clock,
            spawn=lambda work: asyncio.get_running_loop().create_task(work),
        )
        contents = await _published(store, partner)
        policy = Policy(settle_s=0.0)
        async with Controller(
            store, (partner, faulty), policy=policy, clock=clock, entropy=entropy, settings=SETTINGS
        ) as controller:
            yield Life(tested, partner, store, controller, script, contents)
        tasks.cancel_scope.cancel()


async def _published(store: WeightMetadataStore, partner: Tier) -> dict[Member, bytes]:
    """A READY revision whose members lie in the partner."""
    named = {
        f"{payload_prefix(IDENTITY)}{n:06d}": content_of(size) for n, size in enumerate(SIZES_BYTES)
    }
    named[manifest_key(IDENTITY)] = b"the manifest"
    contents = {member: named[member.key] for member in members_of(IDENTITY, named)}
    reference = reference_of(IDENTITY, named)
    record = await store.begin_import(
        identity=IDENTITY,
        expected_payload_count=reference.payload_count,
        expected_logical_bytes=reference.logical_bytes,
    )
    await store.directory.register(IDENTITY, list(contents))
    fence = Fence(holder=store.holder, term=store.term, operation_id=0, generation=1)
    batch = [StoreItem(member=m, open_source=source_of(content)) for m, content in contents.items()]
    assert all(isinstance(one, Done | NoOp) for one in await partner.store(batch, fence))
    await store.commit_import(
        identity=IDENTITY,
        expected_metadata_generation=record.metadata_generation,
        manifest=reference,
    )
    return contents
