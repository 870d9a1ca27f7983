"""What `doctor` is told of real Masters: with and without offload, and of two that are mixed up."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.cli import Cli
from tests.support.mooncake.harness import Named, connection_options
from tests.support.mooncake.lab import PATIENT, Cluster, cluster, needs_wheel, until
from tests.support.mooncake.tiers import REAL
from weightctl.adapters.conformance.suite.material import context
from weightctl.adapters.mooncake import checking
from weightctl.adapters.mooncake.checking import DISK_BYTES
from weightctl.adapters.mooncake.connection import shared
from weightctl.adapters.mooncake.lab.demo import LOOKUPS
from weightctl.adapters.mooncake.options import MooncakeOptions
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.cli.exit_codes import ExitCode

pytestmark = needs_wheel


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is set up slowly is no fault here."""
    monkeypatch.setattr(checking, "_CLIENT_S", 600.0)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("sound")
    with cluster(folder, PATIENT, hosts=1, segment_mib=64) as made:
        until("its disk is told", lambda: f"\n{DISK_BYTES} 0\n" not in made.get("/metrics"))
        yield made


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("bare")
    with cluster(folder, PATIENT, hosts=1, segment_mib=64, offload=False) as made:
        yield made


async def faults(medium: Named, folder: Path) -> set[str]:
    """Names of the checks that are not ok, by their last words."""
    options = connection_options(medium, library=REAL, deadline_s=60.0)
    made = MooncakeOptions(kind="mooncake-local-disk", connection=options, capacity_bytes=1024**3)
    async with MooncakeTier("ssd", made, shared(options, context(folder))) as tier:
        found = await tier.checks(evidence_max_age_s=3600.0)
    assert len(found) == 5
    return {one.name.rpartition(" ")[2] for one in found if not one.ok}


async def test_each_flaw_is_told_and_a_sound_cluster_has_none(
    tmp_path: Path, sound: Cluster, bare: Cluster
) -> None:
    assert not await faults(sound, tmp_path / "sound")
    assert await faults(bare, tmp_path / "bare") == {"disks"}
    crossed = SimpleNamespace(admin=sound.admin, master=bare.master)
    assert await faults(crossed, tmp_path / "crossed") == {"addresses"}


def test_nothing_was_changed_by_it(sound: Cluster, bare: Cluster) -> None:
    for one in (sound, bare):
        assert not one.get("/get_all_keys")
        lines = one.get("/metrics").splitlines()
        counts = dict(line.split() for line in lines if line[:1] != "#" and "{" not in line)
        assert {counts[f"master_{name}_requests_total"] for name in LOOKUPS} == {"0"}


def test_doctor_shows_what_a_tier_tells(tmp_path: Path, sound: Cluster, bare: Cluster) -> None:
    section = f"""
[mooncake]
admin = "{bare.admin}"
master = "{bare.master}"
deadline_s = 60.0

[[tier]]
name = "ssd"
kind = "mooncake-local-disk"
capacity_bytes = "1GiB"
"""
    cli = Cli(tmp_path, ("memory",), extra=section)
    found = {one["name"]: one for one in cli.json("doctor", code=ExitCode.ERROR)["checks"]}
    assert not found["cluster mooncake: disks"]["ok"]
    assert "--enable_offload=true" in found["cluster mooncake: disks"]["todo"]
    assert "checks" not in cli.json("tiers")
