"""What somebody else holds is waited for by time, and told; what fails in passing by tries."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.rig import IDENTITY, Rig, rig
from weightctl.controller.api.transfer import reporter
from weightctl.controller.core.records import Availability
from weightctl.controller.errors import UnknownOutcomeError
from weightctl.controller.ports import Busy, Fence, Outcome, StoreItem, Unknown
from weightctl.controller.weightstore.options import Progress, WeightStoreOptions

BUSY_S = WeightStoreOptions().busy_s
DISCARD_S = 30.0
"""After which Mooncake's Master discards what a dead client began, unless it is set otherwise."""
HELD = Busy(detail="it is being written")


@asynccontextmanager
async def passing(folder: Path) -> AsyncIterator[Rig]:
    """A rig in which nothing but sleeping takes time."""
    async with rig(folder) as parts:

        async def sleep(seconds: float) -> None:
            assert 0 < seconds <= 30
            parts.clock.jump(seconds)

        parts.clock.sleep = sleep  # type: ignore[method-assign]
        yield parts


def held_until(parts: Rig, wall_ms: int, told: Busy) -> None:
    """The hot tier says that until then."""
    store = parts.hot.store

    async def busy(batch: Sequence[StoreItem], fence: Fence, **options: Any) -> Sequence[Outcome]:
        if parts.clock.wall_ms() < wall_ms:
            return [told] * len(batch)
        return await store(batch, fence, **options)

    parts.hot.store = busy  # type: ignore[method-assign]


async def test_what_a_dead_writer_had_begun_is_waited_for_until_the_medium_discards_it(
    tmp_path: Path,
) -> None:
    async with passing(tmp_path) as parts:
        held_until(parts, parts.clock.wall_ms() + int(DISCARD_S * 1000), HELD)
        began_s = parts.clock.monotonic_s()
        report = await parts.weights.put(IDENTITY, parts.source)
        assert report.record.availability is Availability.READY
        assert DISCARD_S <= parts.clock.monotonic_s() - began_s < DISCARD_S + 10


async def test_what_is_held_for_ever_is_given_up_after_the_stated_time(tmp_path: Path) -> None:
    async with passing(tmp_path) as parts:
        held_until(parts, 10**15, HELD)
        began_s = parts.clock.monotonic_s()
        with pytest.raises(UnknownOutcomeError, match=r"held for 6\d s; .* it is being written"):
            await parts.weights.put(IDENTITY, parts.source)
        assert BUSY_S <= parts.clock.monotonic_s() - began_s < BUSY_S + 10
        assert await parts.availability() is Availability.IMPORTING


async def test_an_end_that_the_tier_knows_is_waited_for(tmp_path: Path) -> None:
    async with passing(tmp_path) as parts:
        until_ms = parts.clock.wall_ms() + int(3 * BUSY_S * 1000)
        held_until(parts, until_ms, Busy(until_ms=until_ms))
        report = await parts.weights.put(IDENTITY, parts.source)
        assert report.record.availability is Availability.READY


async def test_an_end_that_is_put_off_again_and_again_is_given_up(tmp_path: Path) -> None:
    async with passing(tmp_path) as parts:
        began_s = parts.clock.monotonic_s()

        async def renewed(batch: Sequence[StoreItem], *_: Any, **__: Any) -> Sequence[Outcome]:
            return [Busy(until_ms=parts.clock.wall_ms() + 10_000)] * len(batch)

        parts.hot.store = renewed  # type: ignore[method-assign]
        with pytest.raises(UnknownOutcomeError, match="it was held for"):
            await parts.weights.put(IDENTITY, parts.source)
        assert parts.clock.monotonic_s() - began_s < BUSY_S + 20


async def test_waiting_counts_no_try_and_a_try_no_waiting(tmp_path: Path) -> None:
    async with passing(tmp_path) as parts:
        lost: list[Outcome] = [Unknown(detail="lost")] * 4
        held: list[Outcome] = [HELD] * 4
        parts.hot.faults.outcomes = [one for pair in zip(lost, held, strict=True) for one in pair]
        report = await parts.weights.put(IDENTITY, parts.source)
        assert report.record.availability is Availability.READY


async def test_a_wait_is_told_once_with_what_is_waited_for_and_is_a_sign_of_life(
    tmp_path: Path,
) -> None:
    async with passing(tmp_path) as parts:
        held_until(parts, parts.clock.wall_ms() + int(DISCARD_S * 1000), HELD)
        seen: list[Progress] = []
        frames: list[object] = []
        idle_s: list[float] = []
        to_frames = reporter(lambda frame: frames.append(dict(frame)))

        def told(progress: Progress) -> None:
            seen.append(progress)
            to_frames(progress)
            if progress.waits:
                idle_s.append(parts.store.import_idle_s(identity=IDENTITY))

        await parts.weights.put(IDENTITY, parts.source, progress=told)
        waits = {progress.waits for progress in seen} - {""}
        assert all(what.endswith(": Busy: it is being written") for what in waits)
        assert set(idle_s) == {0.0}
        notes = [frame["note"] for frame in frames if isinstance(frame, dict) and "note" in frame]
        assert notes == [f"store memory waits: {what}" for what in waits]
        assert not seen[-1].waits
