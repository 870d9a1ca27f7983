"""The memory tier: files in a tmpfs that consumers on this host map without a copy.

Layer: a tier.  Invariants: it forgets with the boot (shared/forgetting.py), so that its folder may
lie on any file system, though only a tmpfs, such as the default, keeps it off a disk; a mapped
replica stays readable for who mapped it, also after it was dropped; it never takes the last eighth
of the memory that the machine, or a control group around the process, has.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from weightctl.adapters.shared.file_tier import FileTier
from weightctl.adapters.shared.forgetting import ForgettingMedium
from weightctl.adapters.shared.options import TierOptions
from weightctl.adapters.shared.ownership import ADOPT
from weightctl.adapters.shared.ram import Available
from weightctl.adapters.shared.room import Room, medium_free_bytes
from weightctl.adapters.shared.root import Root
from weightctl.controller.core.tiers import Capabilities, TierProfile
from weightctl.controller.ports import Tier, TierContext

KIND = "memory"
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the tmpfs itself; our folder in it has a marker


def factory(name: str, options: Mapping[str, object], context: TierContext, /) -> Tier:
    """Options: `path` (default: a folder of this state directory in /dev/shm), `capacity_bytes`,
    `adopt`.
    """
    known = TierOptions(name, options, ("path", "capacity_bytes", ADOPT))
    digest = hashlib.sha256(os.fsencode(f"{context.state_dir}\0{name}")).hexdigest()
    path = Path(context.state_dir) / known.text(
        "path", str(_SHARED_MEMORY / f"weightctl-{digest[:16]}")
    )
    profile = TierProfile(
        name=name,
        kind=KIND,
        hot=True,
        capabilities=Capabilities(atomic_publish=True, checksum=True, mappable=True),
        bandwidth_bytes_per_s=2 * 1024**3,
        latency_s=0.0001,
    )
    capacity_bytes = known.size_bytes("capacity_bytes")
    free_bytes = partial(_free_bytes, Available(context.clock))
    root = Root(
        # Anybody can make a folder of a name that can be guessed in /dev/shm.
        ForgettingMedium(
            path,
            KIND,
            remembered=None,
            durable=True,
            holder=context.holder,
            trusted=Path(context.state_dir),
            misfit=partial(_shortage, capacity_bytes or 0, free_bytes),
        ),
        Room(capacity_bytes, free_bytes),
        durable=False,
        token=context.entropy.token,
    )
    return FileTier(
        profile,
        root,
        read_only=context.read_only,
        adopt=known.flag(ADOPT),
        fence=context.fence,
    )


def _shortage(capacity_bytes: int, free_bytes: Callable[[int], int], folder_fd: int) -> str:
    free = free_bytes(folder_fd)
    if capacity_bytes <= free:
        return ""
    return f"capacity_bytes is {capacity_bytes}, and only {free} bytes of memory can be used there"


def _free_bytes(available: Available, root_fd: int) -> int:
    """What the tmpfs, the machine and the container can all still take, less a reserve."""
    return int(min(medium_free_bytes(root_fd), available()))
