"""The three cold tiers that lie on a disk: how to build them, and how to look at what is left.

Looking uses the tiers' own engines without their processes and threads, so that hundreds of images
a second can be judged.
"""

from pathlib import Path

from tests.faults.disks.replicas import HOLDER, Kind, table
from weightctl.adapters import dfs, local_disk, nof
from weightctl.adapters.dfs.engine import Engine
from weightctl.adapters.nof.access import DeviceAccess, DeviceOptions
from weightctl.adapters.nof.layout import aligned_buffer
from weightctl.adapters.nof.medium import open_medium
from weightctl.adapters.shared import observing, reading
from weightctl.adapters.shared.file_tier import FileTier
from weightctl.adapters.shared.root import Root
from weightctl.controller.core.observation import Member, MemberState
from weightctl.controller.errors import FencedError
from weightctl.controller.ports import Fence, Tier, TierContext

DEVICE_BYTES = 4 * 1024 * 1024
REMEMBERED = "state/tiers/{}.uuid"


def _old(term: int) -> Fence:
    return Fence(holder=HOLDER, term=term, operation_id=1, generation=1)


class _Files:
    """A root folder."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def states(self, group_id: str) -> dict[str, int]:
        members = table(group_id)
        seen = observing.observe(self._root, members)
        assert not seen.problem, seen.problem
        return dict(zip(members.keys, seen.states, strict=True))

    def content(self, member: Member) -> bytes:
        replica = reading.open_replica(self._root, member)
        try:
            return Path(replica.path).read_bytes()
        finally:
            reading.close_replica(self._root, replica)

    def refuses(self, term: int) -> bool:
        try:
            self._root.admit(_old(term))
        except FencedError:
            return True
        return False

    def close(self) -> None:
        """Nothing stays open."""


class _Device:
    """A nof device."""

    def __init__(self, options: DeviceOptions) -> None:
        self._access = DeviceAccess(options)
        self._path = options.path

    def states(self, group_id: str) -> dict[str, int]:
        with self._access.viewed(b"") as view:
            visible = view.catalog.visible.get(group_id, {})
        return {
            key: MemberState.COMPLETE if key in visible else MemberState.ABSENT
            for key in table(group_id).keys
        }

    def content(self, member: Member) -> bytes:
        with self._access.viewed(b"") as view:
            replica = view.catalog.visible[member.group_id][member.key]
            geometry = view.superblock.geometry
        assert (replica.size_bytes, replica.sha256) == (member.size_bytes, member.sha256)
        medium = open_medium(self._path, writable=False)
        found = b""
        for start, count in replica.extents:
            buffer = aligned_buffer(count * 4096)
            medium.read_into(geometry.block_offset(start), buffer)
            found += bytes(buffer)
        medium.close()
        return found[: member.size_bytes]

    def refuses(self, term: int) -> bool:
        with self._access.opened(b"") as device:
            outcomes = device.drop([], _old(term))
            return not outcomes and device.catalog.fences.get(HOLDER, 0) > term

    def close(self) -> None:
        self._access.close()


def _local_disk(folder: Path, context: TierContext) -> Tier:
    return local_disk.factory("tier", {"path": str(folder / "root")}, context)


def _dfs(folder: Path, context: TierContext) -> Tier:
    return dfs.factory("tier", {"path": str(folder / "root"), "workers": 2}, context)


def _nof(folder: Path, context: TierContext) -> Tier:
    options = {"path": str(folder / "device"), "size_bytes": DEVICE_BYTES, "workers": 2}
    return nof.factory("tier", options, context)


def _reopen_local_disk(folder: Path, context: TierContext) -> _Files:
    tier = _local_disk(folder, context)
    assert isinstance(tier, FileTier)
    tier._enter()
    return _Files(tier._root)


def _reopen_dfs(folder: Path, context: TierContext) -> _Files:
    kept = folder / "state" / "tiers" / "tier.host"
    engine = Engine(
        memoryview(bytearray()),
        path=str(folder / "root"),
        remembered=str(folder / REMEMBERED.format("tier")),
        host=kept.read_text() if kept.exists() else context.entropy.token(3),
        uuid=context.entropy.token(16),
        holder=context.holder,
    )
    engine.enter()
    engine.sweep()
    return _Files(engine._root)


def _reopen_nof(folder: Path, context: TierContext) -> _Device:
    return _Device(
        DeviceOptions(
            path=str(folder / "device"),
            uuid=bytes.fromhex(context.entropy.token(16)),
            size_bytes=DEVICE_BYTES,
            remembered=str(folder / REMEMBERED.format("tier")),
            owner=HOLDER,
        )
    )


KINDS = {
    kind.name: kind
    for kind in (
        Kind(name="local_disk", build=_local_disk, reopen=_reopen_local_disk),
        Kind(name="dfs", build=_dfs, reopen=_reopen_dfs),
        Kind(name="nof", build=_nof, reopen=_reopen_nof),
    )
}
