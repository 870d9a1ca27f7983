"""What the suite needs of a tier under test: how to make one, and how to hurt its medium.

Layer: conformance.  A harness owns one medium.  `tier()` gives a fresh tier object over it, as a
fresh process would have; the fault methods hurt the medium from outside.  For a medium that is a
file or folder named in the options everything here works as it is; another medium overrides what it
can, and the cases of the rest are skipped as not tried.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from json import dumps
from pathlib import Path
from typing import Any, NoReturn, cast

import anyio
import pytest

from weightctl.adapters.conformance.report import OPTIONAL, UNTRIED
from weightctl.adapters.conformance.suite.material import context
from weightctl.controller.core.observation import Member
from weightctl.controller.errors import ConfigError
from weightctl.controller.ports import Tier, TierContext, TierFactory

TMP = "{tmp}"
OTHERS = "others"
"""State directories of other stores, which are no part of the medium."""
_SAMPLE_BYTES = 64


def untried(ability: str) -> NoReturn:
    """Skip a case for which the harness has no answer."""
    pytest.skip(f"{UNTRIED} the harness has no `{ability}` for this medium")


def unable(ability: str) -> NoReturn:
    """Skip a case for which the harness has no answer and need not have one; a hint says so."""
    pytest.skip(f"{OPTIONAL} the harness has no `{ability}` for this medium")


def object_of(spec: str) -> Any:  # noqa: ANN401 - whatever the text names
    """What `module:attribute` names, as in an entry point."""
    module, _, attribute = spec.partition(":")
    return getattr(import_module(module), attribute)


def factory_of(spec: str) -> TierFactory:
    """The factory that an entry point's text names."""
    return cast("TierFactory", object_of(spec))


class TierHarness:
    """One medium below `folder` and the tiers over it.

    A subclass names its `factory` as the entry point does, and its `options`, in whose texts
    `{tmp}` stands for the folder: `{"path": "{tmp}/medium"}`.
    """

    name: str = "tier"
    """What its tiers are called."""
    factory: str = ""
    options: Mapping[str, object] = {}
    capacity_option: str = "capacity_bytes"
    """The option that limits the tier, in bytes; empty when it has none."""
    adopt_option: str = "adopt"
    """The option that takes over another store's medium; empty when it has none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._aside = folder / "aside"

    # --- tiers ------------------------------------------------------------------------------------

    def tier(self, *, capacity_bytes: int | None = None, read_only: bool = False) -> Tier:
        """A fresh tier over the same medium."""
        extra: dict[str, object] = {}
        if capacity_bytes is not None:
            extra = self._offered(self.capacity_option, capacity_bytes)
        return self._made(context(self.folder / "state", read_only=read_only), extra)

    def tier_of(self, holder: str, *, adopt: bool = False, read_only: bool = False) -> Tier:
        """A fresh tier over the same medium for another store, empty for none."""
        if not self.factory:
            untried("tier_of")
        opened = context(self.folder / OTHERS / holder, read_only=read_only, holder=holder)
        return self._made(opened, self._offered(self.adopt_option, value=True) if adopt else {})

    def hasty_tier(self) -> Tier:
        """A fresh tier for a medium that will hang: with short deadlines, if it has any."""
        return self.tier()

    def _made(self, opened: TierContext, extra: Mapping[str, object]) -> Tier:
        return factory_of(self.factory)(self.name, {**self.filled(), **extra}, opened)

    def _offered(self, option: str, value: object) -> dict[str, object]:
        """The option as an argument, where the factory knows it."""
        extra = {option: value}
        try:
            self._made(context(self.folder / "probe", read_only=True), extra)
        except ConfigError:
            pytest.skip(f"the factory knows no option {option!r}")
        return extra

    def filled(self) -> dict[str, object]:
        """The options with the folder in them."""
        return {
            name: value.replace(TMP, str(self.folder)) if isinstance(value, str) else value
            for name, value in self.options.items()
        }

    # --- faults; all of them block and are called in a worker thread ------------------------------

    def kill_writer(self, member: Member, content: bytes) -> None:
        """Let a process be killed while it stores `member`; blocking."""
        if not self.factory:
            untried("kill_writer")
        (self.folder / "content").write_bytes(content)
        name = "weightctl.adapters.conformance.suite.doomed_writer"
        argv = [sys.executable, "-m", name, self.factory, dumps(self.filled())]
        argv += [str(self.folder), member.group_id, member.key]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        piped = subprocess.PIPE
        with subprocess.Popen(argv, stdout=piped, env=environment) as child:  # noqa: S603 - ours
            assert child.stdout is not None
            assert child.stdout.readline() == b"halfway\n"
            child.send_signal(signal.SIGKILL)

    def take_away(self) -> None:
        """The medium is gone, as after an unmount; blocking."""
        place = self.place("take_away")
        folder = place.is_dir()
        place.rename(self._aside)
        if folder:
            place.mkdir()  # as a mount point does when nothing is mounted

    def bring_back(self) -> None:
        """Undo `take_away`."""
        place = self.place("bring_back")
        if place.is_dir():
            shutil.rmtree(place)
        self._aside.replace(place)

    def hang(self) -> None:
        """The medium takes what it is asked and gives no answer; blocking.

        Optional: without it the cases of such a medium do not count, and a hint says so.
        """
        untried("hang")

    def resume(self) -> None:
        """Undo `hang`: it goes on, and carries out what it was asked meanwhile."""
        untried("resume")

    def replace(self) -> None:
        """Another, empty medium of the same kind lies in its place; blocking."""
        self.place("replace")
        self.take_away()
        opened = context(self.folder / OTHERS / "replaced", holder="replaced")

        async def begin() -> None:
            async with self._made(opened, {}):
                pass

        anyio.run(begin)

    def begin_anew(self) -> None:
        """The medium is lost for good, with what the store remembers of it; blocking.

        Optional; the next tier begins a new one.
        """
        place = self._file_place() or unable("begin_anew")
        if place.is_dir():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
        shutil.rmtree(self.folder / "state", ignore_errors=True)

    def flip_bit(self, member: Member, content: bytes) -> None:
        """One stored bit of the replica of `member`, which is `content`, turns; blocking."""
        self.place("flip_bit")
        at = member.size_bytes // 2
        sample = content[at : at + _SAMPLE_BYTES]
        for path in self.files():
            stored = path.read_bytes()
            found = stored.find(sample)
            if found >= 0:
                with path.open("r+b") as file:
                    file.seek(found)
                    file.write(bytes([sample[0] ^ 0x10]))
                return
        untried("flip_bit")

    def cut(self, member: Member, content: bytes) -> None:
        """The second half of the stored bytes of `member`, which are `content`, is lost; blocking.

        Optional; works as it is where a file ends with the bytes of one replica.
        """
        for path in self.files() if self._file_place() else ():
            stored = path.read_bytes()
            if stored.endswith(content):
                os.truncate(path, len(stored) - member.size_bytes // 2)
                return
        unable("cut")

    def fingerprint(self) -> object:
        """All that a change of the medium would change; blocking."""
        self.place("fingerprint")
        found = {}
        for path in self.folder.rglob("*"):
            if OTHERS not in path.parts:
                status = path.lstat()
                found[str(path)] = (status.st_mode, status.st_size, status.st_ctime_ns)
        return found

    # --- a medium of files ------------------------------------------------------------------------

    def place(self, ability: str) -> Path:
        """The file or folder that the options name; skips the case where they name none."""
        return self._file_place() or untried(ability)

    def _file_place(self) -> Path | None:
        for value in self.options.values():
            if isinstance(value, str) and TMP in value:
                return Path(value.replace(TMP, str(self.folder)))
        return None

    def files(self) -> Iterator[Path]:
        """Every file of the medium."""
        place = self.place("files")
        if place.is_dir():
            yield from (path for path in place.rglob("*") if path.is_file())
        elif place.exists():
            yield place


def harness_over(harness: str, factory: str, options: Mapping[str, object]) -> type[TierHarness]:
    """The harness that `harness` names, else a plain one, over that factory and these options."""
    base: type[TierHarness] = object_of(harness) if harness else TierHarness
    names = {"factory": factory or base.factory, "options": {**base.options, **options}}
    return cast("type[TierHarness]", type("Harness", (base,), names))
