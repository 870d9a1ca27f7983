"""What `doctor` is told of a Mooncake cluster, each flaw beside a sound one; nothing is changed."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from anyio import to_thread

from tests.support.mooncake.fake import FakeMooncake, fake
from tests.support.mooncake.harness import connection_options
from tests.support.mooncake.tiers import IMITATED
from weightctl.adapters.conformance.suite.material import context
from weightctl.adapters.mooncake import checking
from weightctl.adapters.mooncake.connection import shared
from weightctl.adapters.mooncake.options import MooncakeOptions
from weightctl.adapters.mooncake.root_fs.tier import DiskTier
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.ports import Check

TIB = 1024**4


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is set up slowly is no fault here."""
    monkeypatch.setattr(checking, "_CLIENT_S", 600.0)


@pytest.fixture
def master(imitated: FakeMooncake) -> FakeMooncake:
    return imitated


@pytest.fixture
def other() -> Iterator[FakeMooncake]:
    with fake() as made:
        yield made


@asynccontextmanager
async def opened(
    master: FakeMooncake,
    folder: Path,
    kind: str,
    *,
    read_only: bool = True,
    capacity_bytes: int | None = None,
    **changes: object,
) -> AsyncIterator[MooncakeTier]:
    """One tier of its own connection, as `doctor` opens it."""
    options = connection_options(master, **{"library": IMITATED, "deadline_s": 60.0, **changes})
    made = MooncakeOptions(kind=kind, connection=options, capacity_bytes=capacity_bytes)
    connection = shared(options, replace(context(folder), read_only=read_only))
    tier = DiskTier if kind == "mooncake-disk" else MooncakeTier
    async with tier("one", made, connection) as entered:
        yield entered


async def told(
    master: FakeMooncake,
    folder: Path,
    kind: str = "mooncake-local-disk",
    *,
    evidence_max_age_s: float = 3600.0,
    capacity_bytes: int | None = TIB,
    **changes: Any,
) -> dict[str, Check]:
    """The checks by the last word of their names."""
    size = None if kind == "mooncake-memory" else capacity_bytes
    async with opened(master, folder, kind, capacity_bytes=size, **changes) as tier:
        found = await tier.checks(evidence_max_age_s=evidence_max_age_s)
    return {one.name.rpartition(" ")[2]: one for one in found}


def faults(found: dict[str, Check]) -> dict[str, str]:
    """What is not ok, which says what to do."""
    assert all(one.todo for one in found.values() if not one.ok)
    return {name: one.detail for name, one in found.items() if not one.ok}


async def test_a_sound_cluster_has_no_fault_and_is_not_changed(
    tmp_path: Path, master: FakeMooncake
) -> None:
    found = await told(master, tmp_path)
    assert set(found) == {"client", "addresses", "hosts", "leases", "disks"}
    assert not faults(found)
    assert not master.objects
    assert set(master.calls) == {"task"}


async def test_hosts_without_disks_are_a_fault_of_the_tier_that_needs_them(
    tmp_path: Path, master: FakeMooncake
) -> None:
    master.has_disks = False
    assert "offload" in faults(await told(master, tmp_path))["disks"]
    assert not faults(await told(master, tmp_path / "memory", "mooncake-memory"))


async def test_more_declared_than_the_hosts_have_is_a_fault(
    tmp_path: Path, master: FakeMooncake
) -> None:
    assert "4096 GiB" in faults(await told(master, tmp_path, capacity_bytes=5 * TIB))["disks"]
    assert not faults(await told(master, tmp_path / "fits", capacity_bytes=4 * TIB))


async def test_two_masters_are_told_apart_without_putting_anything(
    tmp_path: Path, master: FakeMooncake, other: FakeMooncake
) -> None:
    crossed = SimpleNamespace(admin=master.admin, master=other.master)
    detail = faults(await told(crossed, tmp_path))["addresses"]  # type: ignore[arg-type]
    assert master.admin in detail
    assert other.master in detail
    assert not master.objects
    assert not other.objects


async def test_a_master_that_nobody_reaches_for_clients_is_a_fault(
    tmp_path: Path, master: FakeMooncake
) -> None:
    half = SimpleNamespace(admin=master.admin, master="127.0.0.1:1")
    found = faults(await told(half, tmp_path))  # type: ignore[arg-type]
    assert set(found) == {"client"}
    assert "127.0.0.1:1" in found["client"]


async def test_a_library_that_cannot_be_loaded_is_a_fault(
    tmp_path: Path, master: FakeMooncake
) -> None:
    found = faults(await told(master, tmp_path, library="weightctl_has_no.such"))
    assert set(found) == {"client"}
    assert "MissingLibrary" in found["client"]


async def test_no_host_and_segments_that_no_host_has_are_faults(
    tmp_path: Path, master: FakeMooncake
) -> None:
    found = faults(await told(master, tmp_path, segments=("10.0.0.1:1", "10.0.0.7:1")))
    assert found["hosts"].startswith("`segments` names 10.0.0.7:1, which")
    master.segments.clear()
    assert "no host" in faults(await told(master, tmp_path / "none"))["hosts"]


async def test_a_lease_that_outlasts_evidence_is_a_fault(
    tmp_path: Path, master: FakeMooncake
) -> None:
    found = faults(await told(master, tmp_path, lease_ttl_s=20.0, evidence_max_age_s=20.0))
    assert "policy.evidence_max_age_s" in found["leases"]
    assert not faults(
        await told(master, tmp_path / "short", lease_ttl_s=20.0, evidence_max_age_s=21.0)
    )


@pytest.mark.parametrize("release, advised", [("", False), ("0.3.13.post1", False), ("9", True)])
def test_another_library_than_the_tested_one_is_advised_against(
    release: str, advised: bool
) -> None:
    found = checking._release("client", release)
    assert found.ok
    assert bool(found.todo) is advised


async def test_one_tier_of_a_connection_tells_what_concerns_all(
    tmp_path: Path, master: FakeMooncake
) -> None:
    options = connection_options(master, library=IMITATED)
    connection = shared(options, context(tmp_path))
    made = MooncakeOptions(kind="mooncake-memory", connection=options)
    async with (
        MooncakeTier("one", made, connection) as one,
        MooncakeTier("two", made, connection) as two,
    ):
        assert await one.checks(evidence_max_age_s=3600.0)
        assert not await two.checks(evidence_max_age_s=3600.0)


async def test_nothing_is_told_of_a_master_that_is_away(
    tmp_path: Path, master: FakeMooncake
) -> None:
    master.take_away()
    assert not await told(master, tmp_path)


async def test_files_that_are_not_seen_here_are_a_fault(
    tmp_path: Path, master: FakeMooncake
) -> None:
    master.root_fs = str(tmp_path / "root")
    kind = "mooncake-disk"
    assert "root_fs_dir" not in await told(master, tmp_path / "fresh", kind)
    async with opened(
        master, tmp_path, kind, read_only=False, capacity_bytes=TIB, claim_s=0.1
    ) as tier:
        await tier.capacity()
    assert not faults(await told(master, tmp_path, kind))
    await to_thread.run_sync((tmp_path / "root").rename, tmp_path / "elsewhere")
    assert "mounted" in faults(await told(master, tmp_path, kind))["root_fs_dir"]
