"""A tier of one's own: replicas as files below a folder, on the shared file engine.

    python examples/tier_plugin.py FOLDER

A package offers it to every weightctl on the machine with two lines of its pyproject.toml, and the
configuration then says `kind = "cupboard"`:

    [project.entry-points."weightctl.tiers"]
    cupboard = "tier_plugin:factory"

A medium that is not a folder implements `weightctl.controller.ports.Tier` itself;
`weightctl/adapters/conformance/reference.py` is the shortest whole one.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import small_model

from weightctl.adapters.memory import factory as memory
from weightctl.adapters.shared.file_tier import FileTier
from weightctl.adapters.shared.markers import Medium
from weightctl.adapters.shared.options import TierOptions
from weightctl.adapters.shared.room import Room
from weightctl.adapters.shared.root import Root
from weightctl.controller.clock import SystemClock, SystemEntropy
from weightctl.controller.core.identity import parse_identity
from weightctl.controller.core.records import Residency
from weightctl.controller.core.tiers import Capabilities, TierProfile
from weightctl.controller.ports import Tier, TierContext
from weightctl.controller.runtime.controller import Controller
from weightctl.controller.store.store import WeightMetadataStore
from weightctl.controller.weightstore.facade import WeightStore

IDENTITY = parse_identity("examples/own-tier/v1@1")


def factory(name: str, options: Mapping[str, object], context: TierContext, /) -> Tier:
    """Options: `path`, `capacity_bytes`; an unknown one is refused with the nearest known."""
    known = TierOptions(name, options, ("path", "capacity_bytes"))
    profile = TierProfile(
        name=name,
        kind="cupboard",
        hot=False,
        capabilities=Capabilities(persistent=True, atomic_publish=True, checksum=True),
        bandwidth_bytes_per_s=50 * 1024**2,
    )
    remembered = Path(context.state_dir) / "tiers" / f"{name}.uuid"
    root = Root(
        Medium(Path(known.text("path")), "cupboard", remembered=remembered, durable=True),
        Room(known.size_bytes("capacity_bytes")),
        durable=True,
        token=context.entropy.token,
    )
    return FileTier(profile, root, read_only=context.read_only)


async def main(folder: Path) -> None:
    """Evict a model from memory into the cupboard."""
    clock, entropy = SystemClock(), SystemEntropy()
    context = TierContext(clock=clock, entropy=entropy, state_dir=str(folder / "state"))
    options = {"path": str(folder / "cupboard"), "capacity_bytes": 1024**2}
    async with (
        WeightMetadataStore.open(context.state_dir, clock=clock, entropy=entropy) as store,
        memory("memory", {"path": str(folder / "memory")}, context) as hot,
        factory("cupboard", options, context) as cold,
        Controller(store, (hot, cold), clock=clock, entropy=entropy) as controller,
    ):
        weights = WeightStore(store, (hot, cold), clock=clock, entropy=entropy)
        put = await weights.put(IDENTITY, small_model.write(folder / "small.safetensors"))
        await store.start_residency_operation(
            identity=IDENTITY,
            expected_metadata_generation=put.record.metadata_generation,
            target_residency=Residency.COLD,
            member_count=put.payload_count + 1,
        )
        report = await controller.wait_converged(IDENTITY)
        room = await cold.capacity()
        print(f"{report.record.residency.name}: the cupboard holds {room.used_bytes} bytes")


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]).absolute())
