"""Import a model, move it out of memory and back, and delete it, from Python.

    python examples/move_a_model.py FOLDER

The loop runs inside this process; `weightctl --state-dir FOLDER/state list` works beside it.
"""

import sys
from pathlib import Path

import anyio
import small_model

from weightctl.controller.api.app import App
from weightctl.controller.config.loading import load
from weightctl.controller.core.identity import parse_identity
from weightctl.controller.core.records import Residency
from weightctl.controller.wiring import open_app

IDENTITY = parse_identity("examples/small/v1@1")


async def move(app: App, target: Residency) -> str:
    """Start an operation, wake the loop, wait until the tiers were observed to agree."""
    record = (await app.store.get(identity=IDENTITY)).metadata
    await app.store.start_residency_operation(
        identity=IDENTITY,
        expected_metadata_generation=record.metadata_generation,
        target_residency=target,
        member_count=record.manifest.payload_count + 1,
    )
    report = await app.loop().wait_converged(IDENTITY)
    return report.record.residency.name


async def main(folder: Path) -> None:
    """The whole life of a revision."""
    config = load(environ={}, state_dir=str(folder / "state"))
    async with open_app(config, loop=True) as app:
        put = await app.weights.put(IDENTITY, small_model.write(folder / "small.safetensors"))
        print(f"imported {put.tensor_count} tensors into {', '.join(put.tiers)}")
        print(f"evicted: {await move(app, Residency.COLD)}")
        print(f"rehydrated: {await move(app, Residency.HOT)}")
        record = (await app.store.get(identity=IDENTITY)).metadata
        await app.store.delete_revision(
            identity=IDENTITY, expected_metadata_generation=record.metadata_generation
        )
        deleted = await app.loop().wait_converged(IDENTITY)
        print(f"deleted: {deleted.record.availability.name}")


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]).absolute())
