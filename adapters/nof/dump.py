"""What lies on a nof device, for people: `python -m weightctl.adapters.nof.dump DEVICE [KEY]`.

Layer: nof tier.  Reads without claiming, so it may run beside the controller.  With a key it writes
the replicas of that key as `dd` commands, whose output cut to the size is the replica.  Invariant:
it changes nothing.
"""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

from weightctl.adapters.nof.device import instance_id
from weightctl.adapters.nof.layout import BLOCK_BYTES
from weightctl.adapters.nof.medium import open_medium
from weightctl.adapters.nof.writer import read_catalog
from weightctl.controller.errors import WeightctlError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weightctl.adapters.nof.layout import Superblock
    from weightctl.adapters.nof.records import Catalog, Replica


def describe(path: str, key: str | None = None) -> Iterator[str]:
    """Lines about the device; about the replicas of `key` alone where one is given.

    Raises OSError, and ConfigError, BusyError, TerminalError or TransientError as opening does.
    """
    medium = open_medium(path, writable=False)
    try:
        superblock, catalog = read_catalog(medium)
    finally:
        medium.close()
    if key is None:
        yield from _summary(superblock, catalog)
    for replica in sorted(catalog.replicas.values(), key=lambda one: (one.group_id, one.key)):
        if key is None:
            yield _line(superblock, replica)
        elif replica.key == key:
            yield f"# {_line(superblock, replica)}"
            yield from _commands(path, superblock, replica)


def _summary(superblock: Superblock, catalog: Catalog) -> Iterator[str]:
    geometry, holder = superblock.geometry, superblock.holder
    used = sum(count for item in catalog.replicas.values() for _, count in item.extents)
    state = "closed" if superblock.clean else "in use, or not closed"
    yield f"uuid        {superblock.uuid.hex()}"
    yield f"store       {_said(superblock.owner) or 'none yet'}"
    blocks = f"{geometry.data_blocks} blocks of {BLOCK_BYTES}"
    yield f"size        {geometry.total_bytes} bytes, {blocks}"
    yield f"used        {used} blocks by {len(catalog.replicas)} replicas"
    yield f"index       half {superblock.half}, epoch {superblock.epoch:#x}"
    yield f"writer      {_said(holder.host)} (pid {holder.pid}), claim {superblock.claim}: {state}"
    for name, term in catalog.fences.items():
        yield f"fence       {_said(name)} term {term}"


def _said(text: str) -> str:
    """A text of the device for a terminal: escaped where it would do more than be read."""
    return text if text.isprintable() else repr(text)


def _line(superblock: Superblock, replica: Replica) -> str:
    state = "quarantined" if replica.quarantined else "complete"
    name = instance_id(superblock.uuid, replica.serial)
    return (
        f"{name} {state} {replica.size_bytes} {replica.sha256.hex()} "
        f"{replica.group_id!r} {replica.key!r}"
    )


def _commands(path: str, superblock: Superblock, replica: Replica) -> Iterator[str]:
    for start, count in replica.extents:
        skip = superblock.geometry.block_offset(start) // BLOCK_BYTES
        yield f"dd if={shlex.quote(path)} bs={BLOCK_BYTES} skip={skip} count={count} status=none"


def main(arguments: list[str]) -> int:
    """Print what is asked for; 0, or 1 with the reason on standard error, or 2 for wrong use."""
    if len(arguments) not in {1, 2}:
        sys.stderr.write("use: python -m weightctl.adapters.nof.dump DEVICE [KEY]\n")
        return 2
    try:
        for line in describe(*arguments):
            sys.stdout.write(f"{line}\n")
    except (WeightctlError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
