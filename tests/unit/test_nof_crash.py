"""The nof engine against power loss: every point of every write, flushed or torn or not at all."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.support.nof_media import (
    FENCE,
    MemoryMedium,
    content_of,
    drop_item,
    formatted,
    power_losses,
    read,
    reopened,
    store,
    store_one,
)
from weightctl.adapters.nof.device import NofDevice
from weightctl.controller.ports import Done

MIB = 1024 * 1024


@dataclass(frozen=True)
class Told:
    """What the caller knew when so many events had happened."""

    events: int
    must: dict[str, bytes]
    may: dict[str, bytes]


class Story:
    """Runs steps on a device and keeps, for each moment, what was acknowledged by then."""

    def __init__(self, size_bytes: int = 4 * MIB) -> None:
        self.medium = formatted(size_bytes)
        self.base = bytes(self.medium.data)
        self.device: NofDevice = reopened(self.medium)
        self.instances: dict[str, str] = {}
        self.contents: dict[str, bytes] = {}
        self.told = [Told(0, {}, {})]
        self.versions = 0

    def store(self, *sizes: int) -> list[str]:
        items = []
        for size in sizes:
            self.versions += 1
            key = f"k{self.versions:04}"
            items.append((key, content_of(key, size)))
        self._tell(may=dict(items))
        for (key, content), outcome in zip(
            items, store(self.medium, self.device, *items), strict=True
        ):
            assert isinstance(outcome, Done), outcome
            self.instances[key] = outcome.instance_id
            self.contents[key] = content
        self._tell()
        return [key for key, _ in items]

    def drop(self, *keys: str) -> None:
        gone = {key: self.contents.pop(key) for key in keys}
        self._tell(may=gone)
        items = [drop_item(key, self.instances.pop(key)) for key in keys]
        assert all(isinstance(out, Done) for out in self.device.drop(items, FENCE))
        self._tell()

    def restart(self, *, orderly: bool) -> None:
        if orderly:
            self.device.close()
        self.device = reopened(self.medium)

    def _tell(self, may: dict[str, bytes] | None = None) -> None:
        self.told.append(Told(len(self.medium.events), dict(self.contents), may or {}))

    def check_every_power_loss(self, seed: int) -> int:
        chance = random.Random(seed)
        images = 0
        for seen, image in power_losses(self.base, self.medium.events, chance):
            told = [told for told in self.told if told.events <= seen][-1]
            # A step that ended at this very event may or may not have been told yet.
            before = [told for told in self.told if told.events < seen][-1:] or [told]
            self._check(image, told, before[0])
            images += 1
        return images

    def _check(self, image: bytearray, told: Told, before: Told) -> None:
        medium = MemoryMedium(image)
        device = reopened(medium)
        right = {**before.may, **before.must, **told.may, **told.must}
        seen = {}
        for replica in device.catalog.replicas.values():
            found = read(medium, device, replica.key)
            assert found == right.get(replica.key), f"wrong bytes under {replica.key}"
            seen[replica.key] = found
        missing = told.must.keys() & before.must.keys() - seen.keys()
        assert not missing, f"acknowledged and lost: {missing}"
        # Life goes on after it: what is stored now survives a further restart beside the old.
        store_one(medium, device, "after", b"after" * 1000)
        again = reopened(MemoryMedium(bytearray(medium.data)))
        assert len(again.catalog.replicas) == len(seen) + 1


def _stores_and_drops(story: Story) -> None:
    first = story.store(5000, 0, 4096)
    story.store(100_000)
    story.drop(first[0])
    story.store(5000)  # reuses the blocks of the dropped one
    story.drop(first[1], first[2])
    story.store(1, 8192)


def _full_device_reuses_blocks(story: Story) -> None:
    free = story.device.capacity()[1] - 65536
    (large,) = story.store(free)
    story.drop(large)
    story.store(free // 2, free // 4)


def _restarts_between(story: Story) -> None:
    (one,) = story.store(9000)
    story.restart(orderly=False)
    story.store(9000)
    story.restart(orderly=True)
    story.drop(one)
    story.restart(orderly=False)
    story.store(3000)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "steps", [_stores_and_drops, _full_device_reuses_blocks, _restarts_between]
)
def test_power_loss_at_any_write_loses_nothing_acknowledged(
    steps: Callable[[Story], None], seed: int
) -> None:
    story = Story()
    steps(story)
    assert story.check_every_power_loss(seed) > 20


def test_power_loss_within_a_snapshot_of_the_index_keeps_the_old_one() -> None:
    story = Story()
    kept = story.store(1000, 1000, 1000)
    half = story.device.superblock.half
    while story.device.superblock.half == half:
        story.base = bytes(story.medium.data)
        story.medium.events.clear()
        story.told = [Told(0, dict(story.contents), {})]
        story.store(10)
        story.drop(kept.pop()) if len(kept) > 1 else story.drop(max(story.contents))
    assert story.check_every_power_loss(3) > 10
