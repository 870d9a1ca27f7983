"""An operation that Mooncake could never let end is refused before it holds the revision."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.models import random_tensors, write_model
from tests.support.mooncake.fake import FakeMooncake, fake
from tests.support.mooncake.sidecar import POLICY, Sidecar, sidecar
from tests.support.mooncake.tiers import IMITATED
from tests.support.rig import IDENTITY
from weightctl.adapters.local_disk import factory
from weightctl.controller.api.app import StoreRecords
from weightctl.controller.api.planning import Planning
from weightctl.controller.api.supposing import Wish
from weightctl.controller.clock import SystemClock
from weightctl.controller.core.records import Availability, Residency
from weightctl.controller.errors import ErrorCode, WeightError
from weightctl.controller.ports import Tier

READY, HOT, COLD = Availability.READY, Residency.HOT, Residency.COLD
WAY_OUT = "configure a cold tier of another medium, or delete it"


@pytest.fixture
def imitated() -> Iterator[FakeMooncake]:
    with fake() as made:
        yield made


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model.safetensors", random_tensors())


def planning(beside: Sidecar, *also: Tier) -> Planning:
    """As the verbs have it beside a loop."""
    return Planning(
        records=StoreRecords(beside.store),
        tiers=(beside.memory, beside.disk, *also),
        policy=POLICY,
        clock=SystemClock(),
        running=beside.controller,
    )


async def refused(asked: Planning, verb: str) -> WeightError | None:
    """What the dry run of a verb and its start are refused with."""
    subject = await asked.records.subject(IDENTITY)
    try:
        assert (await asked.dry_run(subject, Wish(verb=verb)))["purpose"] == verb
    except WeightError as refusal:
        return refusal
    return None


async def test_what_needs_a_copy_that_memory_keeps_from_being_read_is_not_started(
    imitated: FakeMooncake, source: Path, tmp_path: Path
) -> None:
    async with sidecar(imitated, tmp_path, library=IMITATED) as beside:
        await beside.weights.put(IDENTITY, source)
        await beside.becomes(READY, HOT)
        asked = planning(beside)
        assert await refused(asked, "evict") is None
        (key,) = [key for key in (await beside.members()).keys if "/payload/" in key]
        imitated.brings_back(key, bytes(imitated.objects[key].content)[::-1])
        for verb in ("evict", "repair"):
            refusal = await refused(asked, verb)
            assert refusal is not None
            assert refusal.code is ErrorCode.NOT_READY
            assert key in refusal.why
            assert WAY_OUT in refusal.todo
        assert await refused(asked, "rehydrate") is None, "it reads nothing back"
        await beside.weights.load(IDENTITY)
        await beside.delete()


async def test_a_copy_of_unknown_origin_is_read_beside_memory_and_lets_an_evict_end(
    imitated: FakeMooncake, source: Path, tmp_path: Path
) -> None:
    async with sidecar(imitated, tmp_path, library=IMITATED) as beside:
        await beside.weights.put(IDENTITY, source)
        await beside.becomes(READY, HOT)
        (key,) = [key for key in (await beside.members()).keys if "/payload/" in key]
        imitated.brings_back(key, bytes(imitated.objects[key].content))
        assert await refused(planning(beside), "evict") is None
        await beside.start(COLD)
        await beside.becomes(READY, COLD)
        assert imitated.objects[key].disk == "host9"
        await beside.weights.load(IDENTITY)


async def test_repair_and_evict_end_where_another_medium_can_have_the_copy(
    imitated: FakeMooncake, source: Path, tmp_path: Path
) -> None:
    async with sidecar(imitated, tmp_path, also=factory, library=IMITATED) as beside:
        await beside.weights.put(IDENTITY, source)
        await beside.becomes(READY, HOT)
        (key,) = [key for key in (await beside.members()).keys if "/payload/" in key]
        imitated.brings_back(key, bytes(imitated.objects[key].content)[::-1])
        (also,) = [one for one in beside.weights._tiers if one.profile.name == "also"]
        for verb in ("repair", "evict"):
            assert await refused(planning(beside, also), verb) is None
        record = await beside.record()
        await beside.store.start_repair(
            identity=IDENTITY,
            expected_metadata_generation=record.metadata_generation,
            target_residency=HOT,
            member_count=len(await beside.members()),
            copies_short=True,
        )
        await beside.becomes(READY, HOT)
        await beside.start(COLD)
        await beside.becomes(READY, COLD)
        assert key not in imitated.objects, "readers are not left with what nobody has proven"
        await beside.start(HOT)
        await beside.becomes(READY, HOT)
        assert await refused(planning(beside), "evict") is None, "what was put anew is known"
