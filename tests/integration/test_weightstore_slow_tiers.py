"""A load waits for no tier that it does not need."""

from pathlib import Path

import anyio
import pytest

from tests.support.plain_tier import PlainTier
from tests.support.rig import IDENTITY, Rig, contents, rig
from weightctl.controller.core.observation import Members, TierObservation

PATIENCE_S = 240.0
LOOK_S = 3600.0
"""For a tier's answer: nobody who waits for it ends with patience."""


async def published(parts: Rig) -> None:
    await parts.weights.put(IDENTITY, parts.source)


def hang(tier: PlainTier, until: anyio.Event | None = None) -> None:
    """From now on it looks only after `until`, or never."""
    look = tier.observe

    async def late(members: Members, *, detail: tuple[int, ...] = ()) -> TierObservation:
        await (anyio.sleep_forever() if until is None else until.wait())
        return await look(members, detail=detail)

    tier.observe = late  # type: ignore[method-assign,assignment]


@pytest.mark.parametrize("name", ["memory", "disk"])
async def test_a_load_is_served_by_one_tier_while_the_other_hangs(
    tmp_path: Path, name: str
) -> None:
    async with rig(tmp_path, observe_deadline_s=LOOK_S) as parts:
        await published(parts)
        hang(parts.hot if name == "memory" else parts.cold)
        with anyio.fail_after(PATIENCE_S):
            report = await parts.weights.load(IDENTITY, verify=True)
        assert contents(report.tensors) == parts.model
        assert set(report.bytes_by_tier) == {"memory", "disk"} - {name}


async def test_a_tier_that_alone_has_the_replicas_is_waited_for(tmp_path: Path) -> None:
    async with rig(tmp_path) as parts:
        await published(parts)
        parts.hot.content.clear()
        answer = anyio.Event()
        hang(parts.cold, answer)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_answer_later, answer)
            report = await parts.weights.load(IDENTITY, verify=True)
        assert contents(report.tensors) == parts.model


async def _answer_later(event: anyio.Event) -> None:
    await anyio.sleep(0.5)  # longer than a better tier would be waited for
    event.set()
