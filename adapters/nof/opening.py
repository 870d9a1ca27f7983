"""Claiming a device for writing.  Layer: nof tier; in the index worker.

Owns who may write next, and to which store the device belongs.  Invariant, in this order: the index
is whole, the claim is durable, what one copy had lost is repaired, and only then blocks are free.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from weightctl.adapters.nof.device import NofDevice
from weightctl.adapters.nof.header import read_superblock, write_superblock
from weightctl.adapters.nof.writer import IndexWriter, load_catalog
from weightctl.adapters.shared.ownership import is_foreign, refuse_foreign
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
    owner: str = "",
    capacity_bytes: int | None = None,
) -> NofDevice:
    """Claim the device that this medium holds; the medium must be locked for writing.

    owner: the store that acts, whose a device without an owner becomes; empty for none.
    Raises what `read_superblock` raises; TransientError for another device than the expected one;
    ForeignMediumError for one of another store;
    BusyError when a writer on another host did not close it (`takeover` names such a host of which
    a person knows that it is down); TerminalError for a damaged index; OSError.
    """
    superblock = read_superblock(medium)
    refuse_another(superblock, expected)
    refuse_other_store(superblock, owner)
    _refuse_other_host(superblock, holder, takeover)
    catalog, log = load_catalog(medium, superblock)
    superblock = write_superblock(
        medium,
        replace(
            superblock,
            claim=superblock.claim + 1,
            holder=holder,
            owner=superblock.owner or owner,
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


def adopt_device(
    medium: Medium, holder: Holder, owner: str, *, expected: bytes = b"", takeover: str = ""
) -> str:
    """Make the device that this medium holds `owner`'s, durably; the medium must be locked.

    Whose it was; empty, and nothing is changed, when not another's.  Raises as `open_device`.
    """
    superblock = read_superblock(medium)
    refuse_another(superblock, expected)
    if not is_foreign(superblock.owner, owner):
        return ""
    _refuse_other_host(superblock, holder, takeover)
    write_superblock(medium, replace(superblock, owner=owner))
    return superblock.owner


def _refuse_other_host(superblock: Superblock, holder: Holder, takeover: str) -> None:
    last = superblock.holder
    if not superblock.clean and not _may_follow(last, holder, takeover):
        raise BusyError(
            None,
            f"nof device {superblock.uuid.hex()} may be in use on host {last.host}",
            f"its process {last.pid} did not close the device",
            f"stop it there; if that host is surely down, set "
            f'`takeover = "{last.host}"` for one start',
        )


def _may_follow(last: Holder, holder: Holder, takeover: str) -> bool:
    """Whether the lock that `holder` has proves that `last`, which did not close, is over.

    Locks and exclusive openings are the kernel's: they speak for every process of this boot, and
    another boot of this host is over.
    """
    return last.boot_id == holder.boot_id or last.host in {holder.host, takeover}


def refuse_other_store(superblock: Superblock, owner: str) -> None:
    """Raise ForeignMediumError for a device of another store than `owner`; empty minds none."""
    refuse_foreign(f"nof device {superblock.uuid.hex()}", superblock.owner, owner)


def refuse_another(superblock: Superblock, expected: bytes) -> None:
    """Raise TransientError unless it is the expected device; empty expects none."""
    if expected and superblock.uuid != expected:
        raise TransientError(
            f"nof device {expected.hex()} cannot be used",
            f"device {superblock.uuid.hex()} is there in its place",
            "attach the first one; to begin with the other one, stop the controller and remove the "
            "tier's .uuid file from its state directory",
        )
