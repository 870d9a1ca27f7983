"""A reader's lease: while it lives, nothing of the revision is dropped.

    python examples/hold_a_lease.py FOLDER

`WeightStore.load` takes and renews one by itself; this is for readers that read on their own.
"""

import sys
from pathlib import Path

import anyio
import small_model

from weightctl.controller.config.loading import load
from weightctl.controller.core.identity import parse_identity
from weightctl.controller.errors import WeightError
from weightctl.controller.wiring import open_app

IDENTITY = parse_identity("examples/leased/v1@1")


async def main(folder: Path) -> None:
    """Take a lease, fail to delete, release it, delete."""
    config = load(environ={}, state_dir=str(folder / "state"))
    async with open_app(config, loop=False) as app:
        store = app.store
        put = await app.weights.put(IDENTITY, small_model.write(folder / "small.safetensors"))
        generation = put.record.metadata_generation
        lease = await store.acquire_lease(
            identity=IDENTITY,
            expected_metadata_generation=generation,
            holder="example",
            ttl_ms=60_000,
        )
        try:
            await store.delete_revision(identity=IDENTITY, expected_metadata_generation=generation)
        except WeightError as refusal:
            print(f"delete refused: {refusal.code.name}")
        await store.release_lease(lease_id=lease.lease_id)
        deleting = await store.delete_revision(
            identity=IDENTITY, expected_metadata_generation=generation
        )
        print(f"after the release: {deleting.availability.name}")


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]).absolute())
