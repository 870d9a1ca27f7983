"""The contract suite's harness of a file tier, with what only its layout allows."""

from collections.abc import Mapping
from pathlib import Path

from weightctl.adapters.conformance.suite.harness import TierHarness
from weightctl.adapters.shared.layout import GROUPS, encode_text
from weightctl.controller.core.observation import Member

MARKER = "weightctl-tier.json"


class FileHarness(TierHarness):
    """A tier of files under `folder`/root, with its state directory beside it.

    spec: the factory as the entry point names it, `module:attribute`.
    """

    options: Mapping[str, object] = {"path": "{tmp}/root"}

    def __init__(self, spec: str, folder: Path) -> None:
        super().__init__(folder)
        self.factory = spec
        self.root = folder / "root"

    def kill_writer(self, member: Member, content: bytes) -> None:
        super().kill_writer(member, content)
        assert [path for path in self.files() if path.name.endswith(".partial")]

    def replace(self) -> None:
        """The other medium even has the same owner."""
        self.take_away()
        text = (self._aside / MARKER).read_text()
        uuid = text.split('"uuid": "')[1].split('"')[0]
        (self.root / MARKER).write_text(text.replace(uuid, uuid[::-1]))

    def replica(self, member: Member) -> Path:
        """The one file of a member."""
        folder = self.root / GROUPS / encode_text(member.group_id)
        (path,) = folder.glob(f"{encode_text(member.key)}~*")
        return path
