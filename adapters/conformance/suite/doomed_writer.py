"""A process that stores one member, says `halfway` before the last piece, and waits to be killed.

Layer: conformance.  Arguments: factory as `module:attribute`, its options as JSON, the harness's
folder, which holds the content in `content`, group id and key.
"""

import sys
from json import loads
from pathlib import Path

import anyio

from weightctl.adapters.conformance.suite.harness import factory_of
from weightctl.adapters.conformance.suite.material import (
    BytesReader,
    context,
    fence,
    member_of,
    opened_with,
)
from weightctl.controller.ports import StoreItem


class _Halting(BytesReader):
    """Never gives the last piece."""

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        if offset + len(buffer) >= self.size_bytes:
            print("halfway", flush=True)  # noqa: T201 - the parent waits for it
            await anyio.sleep_forever()
        await super().read_into(offset, buffer)


async def main(*arguments: str) -> None:
    """Store until the last piece."""
    spec, options, where, group_id, key = arguments
    folder = Path(where)
    content = await anyio.Path(folder / "content").read_bytes()
    tier = factory_of(spec)("tier", loads(options), context(folder / "state"))
    item = StoreItem(
        member=member_of(key, content, group_id),
        open_source=opened_with(_Halting(content, len(content))),
    )
    async with tier:
        await tier.store([item], fence())


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
