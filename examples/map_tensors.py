"""Read tensors where the memory tier keeps them, without a copy.

    python examples/map_tensors.py FOLDER

The arrays stay valid after the lease has ended, also when the revision is evicted meanwhile.
"""

import sys
from pathlib import Path

import anyio
import small_model

from weightctl.controller.config.loading import load
from weightctl.controller.core.identity import parse_identity
from weightctl.controller.weightstore.targets import IntoArrays
from weightctl.controller.wiring import open_app

IDENTITY = parse_identity("examples/mapped/v1@1")


async def main(folder: Path) -> None:
    """Import, then map one tensor of two."""
    config = load(environ={}, state_dir=str(folder / "state"))
    async with open_app(config, loop=False) as app:
        await app.weights.put(IDENTITY, small_model.write(folder / "small.safetensors"))
        report = await app.weights.load(IDENTITY, ["layer.1"], into=IntoArrays(), holder="example")
        tensor = report.tensors["layer.1"]
        array = tensor.numpy()
        print(f"layer.1: {array.dtype}{list(array.shape)}, sum {int(array.sum())}")
        print(f"mapped: {tensor.mapped}, bytes copied: {report.tensor_bytes - report.mapped_bytes}")


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]).absolute())
