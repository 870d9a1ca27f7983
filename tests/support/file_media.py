"""Ways to hurt the folder of a file tier, and a writer to kill, for the contract suite."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.contract.harness import TierHarness, context
from weightctl.adapters.shared.layout import GROUPS, encode_text
from weightctl.controller.core.observation import Member
from weightctl.controller.ports import Tier, TierContext

Factory = Callable[[str, Mapping[str, object], TierContext], Tier]

OTHERS = "others"
"""State directories of other stores, which are no part of the medium."""
ROOT = Path(__file__).parents[2]


class FileHarness(TierHarness):
    """A tier of files under `folder`/root, with its state directory beside it.

    factory: as named by the entry point, `module:attribute` is `spec`.
    """

    def __init__(self, spec: str, factory: Factory, folder: Path) -> None:
        self._spec = spec
        self._factory = factory
        self.folder = folder
        self.root = folder / "root"

    def tier(self, *, capacity_bytes: int | None = None, read_only: bool = False) -> Tier:
        options: dict[str, object] = {"path": str(self.root)}
        if capacity_bytes is not None:
            options["capacity_bytes"] = capacity_bytes
        return self._factory("tier", options, context(self.folder / "state", read_only=read_only))

    def tier_of(self, holder: str, *, adopt: bool = False, read_only: bool = False) -> Tier:
        options: dict[str, object] = {"path": str(self.root), "adopt": adopt}
        state_dir = self.folder / OTHERS / holder
        return self._factory(
            "tier", options, context(state_dir, read_only=read_only, holder=holder)
        )

    def kill_writer(self, member: Member, content: bytes) -> None:
        (self.folder / "content").write_bytes(content)
        argv = [sys.executable, "-m", "tests.support.doomed_writer", self._spec]
        argv += [str(self.folder), member.group_id, member.key]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / '.devroot'}:{ROOT}"}
        with subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment, cwd=ROOT) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"halfway\n"
            partial = [path for path in self.files() if path.name.endswith(".partial")]
            assert partial
            child.send_signal(signal.SIGKILL)
        assert partial[0].exists()

    def take_away(self) -> None:
        self.root.rename(self.folder / "away")
        self.root.mkdir()  # as a mount point does when nothing is mounted

    def bring_back(self) -> None:
        shutil.rmtree(self.root)
        (self.folder / "away").rename(self.root)

    def replace(self) -> None:
        self.take_away()
        shutil.copy(self.folder / "away" / "weightctl-tier.json", self.root)
        marker = self.root / "weightctl-tier.json"
        text = marker.read_text()
        uuid = text.split('"uuid": "')[1].split('"')[0]
        marker.write_text(text.replace(uuid, uuid[::-1]))

    def flip_bit(self, member: Member) -> None:
        path = self.replica(member)
        with path.open("r+b") as file:
            file.seek(member.size_bytes // 2)
            byte = file.read(1)[0]
            file.seek(member.size_bytes // 2)
            file.write(bytes([byte ^ 0x10]))

    def replica(self, member: Member) -> Path:
        """The one file of a member."""
        folder = self.root / GROUPS / encode_text(member.group_id)
        (path,) = folder.glob(f"{encode_text(member.key)}~*")
        return path

    def files(self) -> Iterator[Path]:
        """Every file under the root."""
        return (path for path in self.root.rglob("*") if path.is_file())

    def fingerprint(self) -> object:
        found = []
        for path in sorted(self.folder.rglob("*")):
            if OTHERS in path.parts:
                continue
            status = path.lstat()
            found.append((str(path), status.st_mode, status.st_size, status.st_ctime_ns))
        return found
