"""A plugin that never gives its turn back, in a real `weightctl run`: the others work on."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.cli import IDENTITY, PATIENCE_S, Cli
from weightctl.controller.cli.exit_codes import ExitCode
from weightctl.controller.runtime.holding import Owner
from weightctl.controller.runtime.leftout import LeftOut, leave_out

TURN_S = 0.8
_SOURCE = """
import threading, time
from weightctl.adapters.conformance.reference import ReferenceMedium, ReferenceTier

class Tier(ReferenceTier):
    def __init__(self, name, options, context):
        super().__init__(name, ReferenceMedium())

class Sleeps(Tier):
    async def observe(self, members, *, detail=()):
        time.sleep(3600)

class Builds(Tier):
    def __init__(self, *given):
        time.sleep(3600)

class Locks(Tier):
    async def capacity(self):
        threading.Lock().acquire() and threading.Event().wait()

class Swallows(Tier):
    async def observe(self, members, *, detail=()):
        try: time.sleep(3600)
        except BaseException: pass
        return await super().observe(members, detail=detail)

class Begins(Tier):
    async def __aenter__(self):
        import asyncio
        self.task = asyncio.create_task(self.later())
        return await super().__aenter__()
    async def later(self):
        import asyncio
        await asyncio.sleep(0.01)
        while True: pass

class Ends(Tier):
    async def __aenter__(self):
        import asyncio
        self.task = asyncio.create_task(self.later())
        return await super().__aenter__()
    async def later(self):
        raise SystemExit(5)

class Refuses(Tier):
    async def observe(self, members, *, detail=()):
        while True:
            try: time.sleep(3600)
            except BaseException: pass
"""
KINDS = ("Sleeps", "Builds", "Locks", "Swallows", "Begins", "Ends", "Refuses")


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All of them installed; the folder of their package's metadata."""
    package = tmp_path / "plugins"
    info = package / "holding_tiers-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: holding-tiers\nVersion: 1\n")
    lines = [f"{kind.lower()} = holding_tiers:{kind}" for kind in KINDS]
    (info / "entry_points.txt").write_text("\n".join(["[weightctl.tiers]", *lines, ""]))
    (package / "holding_tiers.py").write_text(_SOURCE)
    monkeypatch.setenv("PYTHONPATH", str(package))
    return info


def with_tiers(folder: Path, *kinds: str) -> Cli:
    cli = Cli(folder, extra=f"[plugins]\nturn_s = {TURN_S}\n[observer]\ndeadline_s = {20 * TURN_S}")
    cli.ready()
    extra = "".join(f'\n[[tier]]\nname = "{kind}"\nkind = "{kind}"\n' for kind in kinds)
    cli.config.write_text(cli.config.read_text() + extra)
    return cli


def problems(cli: Cli) -> dict[str, str]:
    return {row["name"]: row["problem"] for row in cli.json("tiers")["items"]}


def test_who_keeps_its_turn_is_interrupted_named_and_left_alone(
    tmp_path: Path, plugins: Path
) -> None:
    del plugins
    kinds = ("sleeps", "locks", "swallows", "begins")
    cli = with_tiers(tmp_path, *kinds)
    with cli.running():
        assert cli.json("evict", IDENTITY, "--wait")["residency"] == "COLD"
        assert cli.json("rehydrate", IDENTITY, "--wait")["residency"] == "HOT"
        found = problems(cli)
        for kind in kinds:
            assert "it held up the event loop until it was interrupted at" in found[kind], kind
            assert "holding_tiers.py:" in found[kind]
        assert not found["memory"]
        assert not found["local_disk"]
        assert "tier sleeps" in cli.run("doctor", code=1).out
    assert "Traceback" not in cli.log()


def test_a_task_that_a_plugin_began_cannot_end_the_process(tmp_path: Path, plugins: Path) -> None:
    del plugins
    cli = with_tiers(tmp_path, "ends")
    with cli.running() as child:
        assert cli.json("evict", IDENTITY, "--wait")["residency"] == "COLD"
        assert child.poll() is None
    assert (
        "a task that tier ends (plugin holding_tiers:Ends) began raised SystemExit: 5" in cli.log()
    )


def test_who_cannot_be_interrupted_ends_the_process_and_is_left_out_of_the_next(
    tmp_path: Path, plugins: Path
) -> None:
    del plugins
    cli = with_tiers(tmp_path, "refuses")
    with cli.running(may_end=True) as child:
        subprocess.run(cli.command("evict", IDENTITY), capture_output=True, check=False)
        assert child.wait(PATIENCE_S) == ExitCode.HELD_UP, cli.log()
    assert "tier refuses (plugin holding_tiers:Refuses, holding-tiers 1)" in cli.log()
    assert "in observe" in cli.log()
    with cli.running():
        # The first process may have ended before it had taken the request: it is made again.
        assert cli.json("evict", IDENTITY, "--wait")["residency"] == "COLD"
        found = problems(cli)["refuses"]
        assert "it is left out until holding-tiers 1 has another version" in found
        assert "left out" in cli.run("doctor", code=1).out


@pytest.mark.parametrize(
    "words", [("tiers",), ("doctor",), ("plan", IDENTITY), ("evict", IDENTITY, "--wait")]
)
def test_no_verb_of_its_own_process_is_held_up_for_ever(
    words: tuple[str, ...], tmp_path: Path, plugins: Path
) -> None:
    del plugins
    cli = with_tiers(tmp_path, "sleeps", "builds")
    ran = cli.run(*words, code=words == ("doctor",))
    assert "it held up the process until it was interrupted at" in ran.out + ran.err
    assert "holding_tiers.py:" in ran.out + ran.err


def test_a_verb_that_only_looks_ends_too_and_notes_nothing(tmp_path: Path, plugins: Path) -> None:
    del plugins
    cli = with_tiers(tmp_path, "refuses")
    ran = cli.run("plan", IDENTITY, code=ExitCode.HELD_UP)
    assert "tier refuses (plugin holding_tiers:Refuses, holding-tiers 1)" in ran.err
    assert not list(cli.state_dir.glob("left-out/*"))


def test_a_plugin_is_left_out_for_as_long_as_its_note_and_its_version_last(tmp_path: Path) -> None:
    owner = Owner(name="bad", plugin="a:b", package="c 1")
    assert not LeftOut(str(tmp_path)).why(owner)
    file = leave_out(str(tmp_path), owner, "stack")
    assert "c 1 has another version" in LeftOut(str(tmp_path)).why(owner)
    assert not LeftOut(str(tmp_path)).why(replace(owner, package="c 2"))
    assert not LeftOut(str(tmp_path)).why(replace(owner, name="good"))
    for damaged in ("", "[1]", "{}"):
        file.write_text(damaged)
        assert not LeftOut(str(tmp_path)).why(owner)
    file.unlink()
    assert not LeftOut(str(tmp_path)).why(owner)
