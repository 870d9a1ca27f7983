"""The preview of an import beside the import: tiers that cannot take it are refused alike."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from tests.support.plain_tier import PlainTier
from tests.support.rig import IDENTITY, Rig, rig
from weightctl.controller.api.importing import document
from weightctl.controller.core.observation import Member
from weightctl.controller.core.tiers import TierCapacity
from weightctl.controller.errors import (
    ConfigError,
    TerminalError,
    TransientError,
    UnknownOutcomeError,
    WeightctlError,
)
from weightctl.controller.weightstore.facade import WeightStore
from weightctl.controller.weightstore.options import WeightStoreOptions
from weightctl.controller.weightstore.preview import Preview, Previewing

OPTIONS = WeightStoreOptions(observe_deadline_s=0.2)


class Choosy(PlainTier):
    """Keeps no manifest."""

    def unfit(self, member: Member) -> str:
        """As ports.Choosing."""
        return "its name ends with manifest" if member.key.endswith("manifest") else ""


class Mute(PlainTier):
    """Never says how much room it has."""

    async def capacity(self) -> TierCapacity:
        """Hang."""
        await anyio.sleep_forever()
        raise AssertionError


def choosy() -> PlainTier:
    return Choosy("memory", hot=True)


def mute() -> PlainTier:
    return Mute("memory", hot=True)


def silent() -> PlainTier:
    tier = PlainTier("memory", hot=True)
    tier.faults.silent = True
    return tier


def only_shows() -> PlainTier:
    tier = PlainTier("memory", hot=True)
    shown = replace(tier.profile.capabilities, observe_only=True)
    tier.profile = replace(tier.profile, capabilities=shown)
    return tier


def weights(parts: Rig, hot: list[PlainTier]) -> tuple[WeightStore, list[PlainTier]]:
    tiers = [*hot, parts.cold]
    clock, entropy = parts.clock, parts.weights._entropy
    return WeightStore(parts.store, tiers, clock=clock, entropy=entropy, options=OPTIONS), tiers


async def foretold(parts: Rig, tiers: list[PlainTier]) -> Preview:
    looking = Previewing(tiers, OPTIONS, None, None)
    return await looking.run(IDENTITY, str(parts.source), parts.clock.wall_ms())


async def refusal(parts: Rig, tiers: list[PlainTier]) -> WeightctlError:
    """What the preview says that the import is refused with."""
    try:
        found = await foretold(parts, tiers)
    except WeightctlError as error:
        return error
    return found.obstacles[0].error


@pytest.mark.parametrize(
    "made, kind",
    [
        (choosy, TerminalError),
        (mute, TransientError),
        (silent, UnknownOutcomeError),
        (only_shows, ConfigError),
    ],
)
async def test_a_tier_that_takes_nothing_is_refused_as_the_import_is(
    tmp_path: Path, made: Callable[[], PlainTier], kind: type[WeightctlError]
) -> None:
    async with rig(tmp_path) as parts:
        store, tiers = weights(parts, [made()])
        told = await refusal(parts, tiers)
        assert type(told) is kind
        assert not any(tier.content for tier in tiers)
        assert not list(parts.store.records())
        with pytest.raises(kind) as refused:
            await store.put(IDENTITY, parts.source)
        if kind is not UnknownOutcomeError:  # that an import finds out by trying
            assert (refused.value.what, refused.value.why) == (told.what, told.why)


async def test_what_no_tier_can_hold_is_refused_before_anything_is_recorded(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        store, _ = weights(parts, [choosy()])
        with pytest.raises(TerminalError, match="manifest cannot be kept in tier memory"):
            await store.put(IDENTITY, parts.source)
        assert not list(parts.store.records())


async def test_a_tier_that_cannot_hold_a_key_is_passed_over(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        second = PlainTier("second", hot=True)
        store, tiers = weights(parts, [choosy(), second])
        found = await foretold(parts, tiers)
        report = await store.put(IDENTITY, parts.source)
        assert report.tiers == ("second", "disk")
        assert tuple(one.tier.profile.name for one in found.targets) == report.tiers


async def test_what_would_have_to_be_read_is_told_and_not_read(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        await parts.weights.put(IDENTITY, parts.source)
        key, held = parts.payload_keys()[0], dict(parts.hot.content)
    other = tmp_path / "other"
    await to_thread.run_sync(other.mkdir)
    async with rig(other) as parts:
        parts.hot.content[key] = bytes(len(held[key]))
        tiers = [parts.hot, parts.cold]
        plan = document(await foretold(parts, tiers), tiers)
        assert plan["verdict"] == "importable"
        (step,) = [one for one in plan["steps"] if one["reason"] == "ContentUnknown"]
        assert (step["target"], step["members"], step["round"]) == ("memory", 1, 1)
        assert [key for text in plan["remarks"] if key in text]
