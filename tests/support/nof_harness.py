"""The contract suite's harness of the nof tier: one plain file."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from weightctl.adapters.conformance.suite.harness import TierHarness
from weightctl.adapters.conformance.suite.material import context
from weightctl.adapters.nof.access import DeviceOptions
from weightctl.adapters.nof.index_engine import IndexEngine
from weightctl.adapters.nof.medium import open_medium
from weightctl.adapters.nof.options import build
from weightctl.adapters.nof.writer import read_catalog
from weightctl.controller.core.observation import Member
from weightctl.controller.ports import Tier

SIZE_BYTES = 64 * 1024 * 1024

_WRITER = """
import sys, time
from weightctl.adapters.nof.data_engine import DataEngine
from weightctl.adapters.nof.access import DeviceOptions
from weightctl.adapters.nof.index_engine import IndexEngine
from weightctl.adapters.nof.layout import aligned_buffer
from weightctl.adapters.nof.pieces import Segment
from weightctl.controller.core.observation import Member
from weightctl.controller.errors import BusyError
from weightctl.controller.ports import Fence

path, group, key, size, digest = sys.argv[1:]
member = Member(group_id=group, key=key, size_bytes=int(size), sha256=bytes.fromhex(digest))
index = IndexEngine(DeviceOptions(path=path, uuid=bytes(16), size_bytes=64 << 20))
fence = Fence(holder="store-a", term=1, operation_id=1, generation=1)
try:
    (ticket,) = index.reserve(b"", [member], fence, 1, [])
except BusyError:  # one device has one writer
    print("writing", flush=True)
    time.sleep(600)
superblock = index.info(b"")
data = DataEngine(aligned_buffer(4096), path=path, writable=True)
data.begin(superblock.uuid, superblock.claim, ticket.extents)
if ticket.extents:
    offset = superblock.geometry.block_offset(ticket.extents[0][0])
    data.write([Segment(ticket.serial, 0, 1, 0, ((offset, 4096),))])
print("writing", flush=True)
time.sleep(600)
"""


class NofHarness(TierHarness):
    """`folder/n.img`; a medium taken away is renamed."""

    name = "nof"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._path = folder / "n.img"
        self._aside = folder / "aside"

    def tier(self, *, capacity_bytes: int | None = None, read_only: bool = False) -> Tier:
        options: dict[str, object] = {"path": str(self._path), "size_bytes": SIZE_BYTES}
        if capacity_bytes is not None:
            options["capacity_bytes"] = capacity_bytes
        return build("nof", options, context(self.folder, read_only=read_only))

    def tier_of(self, holder: str, *, adopt: bool = False, read_only: bool = False) -> Tier:
        options = {"path": str(self._path), "size_bytes": SIZE_BYTES, "adopt": adopt}
        state_dir = self.folder / "others" / holder
        return build("nof", options, context(state_dir, read_only=read_only, holder=holder))

    def kill_writer(self, member: Member, content: bytes) -> None:
        arguments = [member.group_id, member.key, str(member.size_bytes), member.sha256.hex()]
        with subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(self._path), *arguments],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        ) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"writing\n"
            writer.send_signal(signal.SIGKILL)

    def take_away(self) -> None:
        self._path.rename(self._aside)

    def bring_back(self) -> None:
        self._aside.replace(self._path)

    def replace(self) -> None:
        self.take_away()
        self._index().close()

    def begin_anew(self) -> None:
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def flip_bit(self, member: Member, content: bytes) -> None:
        medium = open_medium(str(self._path), writable=False)
        superblock, catalog = read_catalog(medium)
        medium.close()
        replica = catalog.visible[member.group_id][member.key]
        offset = superblock.geometry.block_offset(replica.extents[-1][0])
        descriptor = os.open(self._path, os.O_RDWR)
        try:
            (byte,) = os.pread(descriptor, 1, offset)
            os.pwrite(descriptor, bytes([byte ^ 1]), offset)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def fingerprint(self) -> object:
        files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        files = [path for path in files if "others" not in path.parts]
        return {path.name: hashlib.sha256(path.read_bytes()).digest() for path in files}

    def _index(self) -> IndexEngine:
        """An index over the device, which is made where there is none."""
        options = DeviceOptions(path=str(self._path), uuid=os.urandom(16), size_bytes=SIZE_BYTES)
        index = IndexEngine(options)
        index.info(b"")
        return index
