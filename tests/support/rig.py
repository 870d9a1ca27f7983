"""A real metadata store, two plain tiers and a weight store over them, for one test."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from tests.support.models import Tensors, random_tensors, write_model
from tests.support.plain_tier import PlainTier
from tests.support.virtual_time import SeededEntropy, VirtualClock
from weightctl.controller.core.identity import Identity, manifest_key
from weightctl.controller.core.records import Availability
from weightctl.controller.ports import Limiter
from weightctl.controller.store.store import WeightMetadataStore
from weightctl.controller.weightstore.facade import WeightStore
from weightctl.controller.weightstore.options import WeightStoreOptions
from weightctl.controller.weightstore.targets import LoadedTensor

IDENTITY = Identity(namespace="prod", resource_id="family/m", revision="v1", weight_generation=3)
MANIFEST_KEY = manifest_key(IDENTITY)


@dataclass
class Rig:
    """The parts; `weights` is the thing under test."""

    store: WeightMetadataStore
    hot: PlainTier
    cold: PlainTier
    weights: WeightStore
    clock: VirtualClock
    folder: Path
    model: Tensors
    source: Path

    async def availability(self) -> Availability:
        return (await self.store.get(identity=IDENTITY)).metadata.availability

    def lease_count(self) -> int:
        return len(self.store.leases(identity=IDENTITY))

    def payload_keys(self) -> list[str]:
        """Give the payload keys that the hot tier holds, in key order."""
        return sorted(key for key in self.hot.content if key != MANIFEST_KEY)


@asynccontextmanager
async def rig(
    folder: Path,
    *,
    payload_bytes: int = 2000,
    workers: int = 2,
    observe_deadline_s: float = 30.0,
    limits: Mapping[str, Limiter] | None = None,
) -> AsyncIterator[Rig]:
    """Open everything in `folder`; the model is not imported yet."""
    clock, entropy = VirtualClock(), SeededEntropy(1)
    model = random_tensors()
    source = await to_thread.run_sync(write_model, folder / "model.safetensors", model)
    hot, cold = PlainTier("memory", hot=True), PlainTier("disk", hot=False)
    async with WeightMetadataStore.open(folder / "state", clock=clock, entropy=entropy) as store:
        weights = WeightStore(
            store,
            [hot, cold],
            clock=clock,
            entropy=entropy,
            options=WeightStoreOptions(
                payload_bytes=payload_bytes,
                workers=workers,
                observe_deadline_s=observe_deadline_s,
            ),
            limits=limits,
        )
        yield Rig(store, hot, cold, weights, clock, folder, model, source)


def contents(tensors: dict[str, LoadedTensor] | object) -> dict[str, object]:
    """Give loaded tensors in the form in which models are written."""
    assert isinstance(tensors, dict)
    return {name: (item.dtype, item.shape, bytes(item.data)) for name, item in tensors.items()}
