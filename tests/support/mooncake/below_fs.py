"""A real Master with `--root_fs_dir`, and the two tiers that are used beside it."""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path

from tests.support.mooncake.harness import CAPACITY_BYTES, Named, connection_options
from tests.support.mooncake.lab import PATIENT, Cluster, cluster
from weightctl.adapters.conformance.suite.material import HOLDER, context
from weightctl.adapters.mooncake.connection import shared
from weightctl.adapters.mooncake.options import MooncakeOptions
from weightctl.adapters.mooncake.root_fs.tier import DiskTier
from weightctl.adapters.mooncake.tier import MooncakeTier


def below_fs(folder: Path, *flags: str) -> AbstractContextManager[Cluster]:
    """A cluster whose files are in the folder `fs`; its one host keeps nothing on a disk."""
    (folder / "fs").mkdir(parents=True)
    root = f"--root_fs_dir={folder / 'fs'}"
    return cluster(folder, PATIENT, root, *flags, hosts=1, segment_mib=64, offload=False)


@asynccontextmanager
async def tiers(
    medium: Named, folder: Path, holder: str = HOLDER, **changes: object
) -> AsyncIterator[tuple[MooncakeTier, DiskTier]]:
    """Memory and files, for one store in a process of its own."""
    options = connection_options(medium, **changes)
    connection = shared(options, context(folder, holder=holder))
    cold = MooncakeOptions(kind="mooncake-disk", connection=options, capacity_bytes=CAPACITY_BYTES)
    hot = MooncakeOptions(kind="mooncake-memory", connection=options)
    async with (
        DiskTier("disk", cold, connection) as disk,
        MooncakeTier("memory", hot, connection) as memory,
    ):
        yield memory, disk
