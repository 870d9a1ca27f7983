"""Failpoints: what can be armed, when it acts, and that nothing of it is there when unset."""

import asyncio
import os
import signal
import subprocess
import sys
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from tests.support.stores import begin
from tests.support.virtual_time import SeededEntropy, VirtualClock
from tests.support.weights import ID
from weightctl.adapters.conformance.reference import ReferenceMedium, ReferenceTier
from weightctl.controller import wiring
from weightctl.controller.api.planning import tier_list
from weightctl.controller.config.loading import Config, load
from weightctl.controller.core.observation import Members
from weightctl.controller.core.records import Availability
from weightctl.controller.errors import ConfigError, ErrorCode, ReconcileError, WeightError
from weightctl.controller.failpoints.journal import connect_with
from weightctl.controller.failpoints.points import TIER_ERRORS, Failpoints, known_names
from weightctl.controller.failpoints.tiers import FailpointTier, error_of
from weightctl.controller.ports import Tier
from weightctl.controller.store.reading import read_state
from weightctl.controller.store.store import WeightMetadataStore

NAMES = known_names(["memory", "disk"])
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "text, why",
    [
        ("journal.apend.after=kill", "did you mean journal.append.after?"),
        ("tier.disc.store.before=kill", "did you mean tier.disk.store.before?"),
        ("tier.*.stroe.before=kill", "no failpoint is called"),
        ("journal.append.after", "it is not NAME[:N]=ACTION"),
        ("journal.append.after:x=kill", "it is not NAME[:N]=ACTION"),
        ("journal.append.after=kil", "did you mean kill?"),
        ("journal.append.before=error", "error does not take"),
        ("journal.*.after=error", "error does not take"),
        ("tier.disk.store.before=error", "error does not take"),
        ("tier.disk.store.before=error:sad", "error does not take"),
        ("file.rename=error:transient", "error does not take"),
        ("file.rename=kill:2", "kill does not take"),
        ("file.rename=stop:soon", "stop does not take"),
        ("@/nowhere/at/all", "give a file that can be read"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Failpoints(text, NAMES)
    assert why in str(caught.value)


def test_a_failpoint_acts_once_at_the_time_that_was_named() -> None:
    points = Failpoints("tier.*.store.before:2=error:busy, file.link=error:EIO", NAMES)
    assert points.reach("tier.disk.store.before") == ""
    assert points.reach("tier.disk.store.after") == ""
    assert points.reach("tier.memory.store.before") == "busy"
    assert points.reach("tier.memory.store.before") == ""
    assert points.reach("file.link") == "EIO"


def test_a_file_arms_a_running_process_and_a_wrong_one_disarms_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def write(text: str) -> None:
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").replace(file)

    file = tmp_path / "failpoints"
    write("")
    points = Failpoints(f"@{file}", NAMES)
    assert "FAILPOINTS ARE ON" in caplog.text
    assert points.reach("file.link") == ""
    write("file.link:2=error:EIO\n")
    assert [points.reach("file.link") for _ in range(3)] == ["", "EIO", ""]
    write("file.link:1=error:EIO\n")
    write("file.lnk:1=error:EIO\n")
    assert points.reach("file.link") == ""
    assert "failpoints not armed" in caplog.text
    file.unlink()
    assert points.reach("file.link") == ""


def test_every_error_that_can_be_asked_for_is_one() -> None:
    assert all(isinstance(error_of(word), ReconcileError) for word in TIER_ERRORS)


class Foreign(ReferenceTier):
    """What a plugin brings: its inventory is none."""

    async def inventory(self, group_id: str | None = None) -> Any:
        del group_id
        return "all there"


def foreign(name: str, *_: object) -> Foreign:
    return Foreign(name, ReferenceMedium())


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """One tier, `disk`, which is the plugin's."""
    found = EntryPoint("foreign", f"{__name__}:foreign", wiring.TIER_GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda _: foreign)
    monkeypatch.setattr(wiring, "entry_points", lambda **_: [found])
    settings = tmp_path / "weightctl.toml"
    settings.write_text('[[tier]]\nname = "disk"\nkind = "foreign"\n')
    return load(environ={}, file=str(settings))


@asynccontextmanager
async def wired(config: Config, armed: str) -> AsyncIterator[Tier]:
    """The plugin's tier as the product has it with failpoints."""
    points = Failpoints(armed, NAMES)
    async with wiring.open_tiers(
        config, holder="ab", read_only=False, seam=lambda tier: FailpointTier(tier, points)
    ) as (tier,):
        yield tier


async def test_a_broken_plugin_is_complained_of_with_failpoints_too(config: Config) -> None:
    async with wired(config, "*=log") as tier:
        with pytest.raises(ReconcileError):
            await tier.inventory()
        (row,) = (await tier_list([tier]))["items"]
        assert "it answered a str" in row["problem"]


@pytest.mark.parametrize("word", TIER_ERRORS)
async def test_an_error_that_was_asked_for_passes_the_border_as_it_is(
    word: str, config: Config
) -> None:
    armed = ", ".join(f"tier.disk.{call}=error:{word}" for call in ("capacity.after", "observe.*"))
    async with wired(config, armed) as tier:
        with pytest.raises(ReconcileError) as caught:
            await tier.capacity()
        assert type(caught.value) is type(error_of(word))
        observation = await tier.observe(
            Members(group_id="group", keys=(), sizes_bytes=array("Q"), sha256=b"", data_types=b"")
        )
        assert caught.value.what in observation.problem
        (row,) = (await tier_list([tier]))["items"]
        assert not row["problem"]


async def test_an_error_after_a_commit_leaves_it_uncertain_and_written(tmp_path: Path) -> None:
    points = Failpoints("journal.append.after=error", NAMES)

    async def use() -> None:
        async with WeightMetadataStore.open(
            tmp_path,
            clock=VirtualClock(wall_ms=1000),
            entropy=SeededEntropy(1),
            connect=partial(connect_with, points),
        ) as store:
            with pytest.raises(WeightError) as caught:
                await begin(store, ID)
            assert caught.value.code is ErrorCode.DURABILITY_FAILED
            assert "may or may not" in caught.value.what
            assert ID not in {record.identity for record in store.records()}

    await use()
    assert await asyncio.to_thread(availability, tmp_path) is Availability.IMPORTING


def availability(folder: Path) -> Availability:
    with read_state(folder) as stored:
        return stored.state.metadata[ID].availability


def run(code: str, **more: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT / ".devroot"), **more}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def test_nothing_of_it_is_imported_or_in_the_way_when_unset() -> None:
    code = """
import sys
from weightctl.controller import wiring
from weightctl.controller.config.loading import Config, load
seams = wiring._seams(load(environ={}))
assert seams == wiring._Seams() and seams.tier(7) == 7
assert not [name for name in sys.modules if "failpoints" in name]
"""
    done = run(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("side, known", [("before", False), ("after", True)])
def test_a_kill_leaves_the_state_before_or_after_the_commit(
    tmp_path: Path, side: str, known: bool
) -> None:
    code = f"""
import asyncio
from functools import partial
from pathlib import Path
from weightctl.controller.clock import SystemClock, SystemEntropy
from weightctl.controller.core.identity import parse_identity
from weightctl.controller.failpoints.journal import connect_with
from weightctl.controller.failpoints.points import Failpoints, known_names
from weightctl.controller.store.store import WeightMetadataStore
async def main():
    points = Failpoints("journal.append.{side}=kill", known_names([]))
    async with WeightMetadataStore.open(
        {str(tmp_path)!r}, clock=SystemClock(), entropy=SystemEntropy(),
        connect=partial(connect_with, points),
    ) as store:
        await store.begin_import(
            identity=parse_identity("a/b/c@1"), expected_payload_count=1, expected_logical_bytes=1
        )
asyncio.run(main())
"""
    assert run(code).returncode == -signal.SIGKILL
    with read_state(tmp_path) as stored:
        assert bool(stored.state.metadata) is known


def test_a_stop_lasts_as_long_as_was_asked_for() -> None:
    code = """
import time
from weightctl.controller.failpoints.points import Failpoints
points = Failpoints("file.link=stop:1", ["file.link"])
before = time.monotonic()
points.reach("file.link")
assert time.monotonic() - before >= 0.9
"""
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_file_calls_are_reached_in_every_module() -> None:
    code = """
import errno, os, tempfile
from pathlib import Path
from weightctl.controller.failpoints.files import watch_files
from weightctl.controller.failpoints.points import Failpoints, known_names
folder = Path(tempfile.mkdtemp())
calls = {
    "open": lambda: (folder / "f").write_text("x"),
    "link": lambda: os.link(folder / "f", folder / "g"),
    "mkdir": lambda: (folder / "d").mkdir(),
    "rename": lambda: (folder / "f").rename(folder / "h"),
    "remove": lambda: (folder / "h").unlink(),
    "rmdir": lambda: (folder / "d").rmdir(),
    "truncate": lambda: os.truncate(folder / "g", 0),
}
text = ",".join(f"file.{call}:1=error:ENOSPC" for call in calls)
watch_files(Failpoints(text, known_names([])))
for call, do in calls.items():
    try:
        do()
    except OSError as error:
        assert error.errno == errno.ENOSPC
    else:
        raise AssertionError(call)
    do()
(folder / "g").unlink()
folder.rmdir()
"""
    done = run(code)
    assert done.returncode == 0, done.stderr
