"""Claiming a device for writing.  Layer: nof tier; in the index worker.

Owns who may write next.  Invariant, in this order: the index is whole, the claim is durable, what
one copy had lost is repaired, and only then blocks are free.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from weightctl.adapters.nof.device import NofDevice
from weightctl.adapters.nof.header import read_superblock, write_superblock
from weightctl.adapters.nof.writer import IndexWriter, load_catalog
from weightctl.controller.errors import BusyError, TransientError

if TYPE_CHECKING:
    from weightctl.adapters.nof.layout import Holder, Superblock
    from weightctl.adapters.nof.medium import Medium


def open_device(
    medium: Medium,
    holder: Holder,
    *,
    expected: bytes = b"",
    takeover: str = "",
    capacity_bytes: int | None = None,
) -> NofDevice:
    """Claim the device that this medium holds; the medium must be locked for writing.

    Raises what `read_superblock` raises; TransientError for another device than the expected one;
    BusyError when a writer on another host did not close it (`takeover` names such a host of which
    a person knows that it is down); TerminalError for a damaged index; OSError.
    """
    superblock = read_superblock(medium)
    refuse_another(superblock, expected)
    if not superblock.clean and not _may_follow(superblock.holder, holder, takeover):
        raise BusyError(
            None,
            f"nof device {superblock.uuid.hex()} may be in use on host {superblock.holder.host}",
            f"its process {superblock.holder.pid} did not close the device",
            f"stop it there; if that host is surely down, set "
            f'`takeover = "{superblock.holder.host}"` for one start',
        )
    catalog, log = load_catalog(medium, superblock)
    superblock = write_superblock(
        medium,
        replace(
            superblock,
            claim=superblock.claim + 1,
            holder=holder,
            clean=False,
            sequence=log.sequence,
        ),
    )
    log.repair()
    medium.sync()
    writer = IndexWriter(medium, superblock, catalog=catalog, log=log)
    device = NofDevice(medium, writer, capacity_bytes)
    device.prove_free()
    return device


def _may_follow(last: Holder, holder: Holder, takeover: str) -> bool:
    """Whether the lock that `holder` has proves that `last`, which did not close, is over.

    Locks and exclusive openings are the kernel's: they speak for every process of this boot, and
    another boot of this host is over.
    """
    return last.boot_id == holder.boot_id or last.host in {holder.host, takeover}


def refuse_another(superblock: Superblock, expected: bytes) -> None:
    """Raise TransientError unless it is the expected device; empty expects none."""
    if expected and superblock.uuid != expected:
        raise TransientError(
            f"nof device {expected.hex()} cannot be used",
            f"device {superblock.uuid.hex()} is there in its place",
            "attach the first one; to begin with the other one, stop the controller and remove the "
            "tier's .uuid file from its state directory",
        )
