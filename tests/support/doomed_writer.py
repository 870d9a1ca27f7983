"""A process that stores one member, says `halfway` in the middle, and waits to be killed.

Arguments: factory as `module:attribute`, folder of the harness, group id, key.
"""

import importlib
import sys
from pathlib import Path

import anyio

from tests.contract.harness import context, fence, member_of, source_of
from weightctl.controller.ports import StoreItem


async def main(*arguments: str) -> None:
    spec, where, group_id, key = arguments
    folder = Path(where)
    module, _, attribute = spec.partition(":")
    factory = getattr(importlib.import_module(module), attribute)
    content = await anyio.Path(folder / "content").read_bytes()
    options = {"path": str(folder / "root")}
    tier = factory("tier", options, context(folder / "state"))
    reads = 0

    async def stop_halfway() -> None:
        nonlocal reads
        reads += 1
        if reads == 3:  # the first piece is written, the second one read
            print("halfway", flush=True)  # noqa: T201 - the parent waits for it
            await anyio.sleep_forever()

    member = member_of(key, content, group_id)
    source = source_of(content, before_read=stop_halfway)
    async with tier:
        await tier.store([StoreItem(member=member, open_source=source)], fence())


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
