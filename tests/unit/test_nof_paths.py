"""Path states of fabrics devices, from made-up sysfs trees, and what the tier makes of them."""

from pathlib import Path

import pytest

from tests.support.nof_media import FENCE, member
from tests.support.nof_tiers import MIB, away, item, observe, states
from weightctl.adapters.nof.access import DeviceOptions
from weightctl.adapters.nof.paths import path_problem
from weightctl.adapters.nof.tier import NofTier
from weightctl.controller.clock import SystemClock
from weightctl.controller.core.observation import MemberState
from weightctl.controller.ports import Done, Retry


def _multipath(sysfs: Path, **controllers: tuple[str, str]) -> None:
    """Namespace nvme3n2 of subsystem nvme-subsys3: controllers by name, (state, ANA state)."""
    subsystem = sysfs / "devices/virtual/nvme-subsystem/nvme-subsys3"
    namespace = subsystem / "nvme3n2"
    namespace.mkdir(parents=True, exist_ok=True)
    for name, (state, ana_state) in controllers.items():
        controller = sysfs / "devices/virtual/nvme-fabrics/ctl" / name
        controller.mkdir(parents=True, exist_ok=True)
        (controller / "state").write_text(f"{state}\n")
        if ana_state:
            path = controller / f"nvme3c{name.removeprefix('nvme')}n2"
            path.mkdir(exist_ok=True)
            (path / "ana_state").write_text(f"{ana_state}\n")
        link = subsystem / name
        if not link.is_symlink():
            link.symlink_to(controller)
    _block(sysfs, "nvme3n2", namespace, subsystem)


def _single(sysfs: Path, state: str) -> None:
    """Namespace nvme0n1 below its one controller, without native multipath."""
    controller = sysfs / "devices/pci/nvme/nvme0"
    (controller / "nvme0n1").mkdir(parents=True)
    (controller / "state").write_text(f"{state}\n")
    _block(sysfs, "nvme0n1", controller / "nvme0n1", controller)


def _block(sysfs: Path, name: str, namespace: Path, parent: Path) -> None:
    (sysfs / "block").mkdir(exist_ok=True)
    if not (sysfs / "block" / name).is_symlink():
        (sysfs / "block" / name).symlink_to(namespace)
        (namespace / "device").symlink_to(parent)


@pytest.mark.parametrize(
    "controllers, problem",
    [
        ({"nvme3": ("live", "optimized")}, ""),
        ({"nvme3": ("live", "non-optimized")}, ""),
        ({"nvme3": ("connecting", "optimized"), "nvme4": ("live", "optimized")}, ""),
        ({"nvme3": ("connecting", "optimized")}, "nvme3 is connecting"),
        ({"nvme3": ("deleting", ""), "nvme4": ("dead", "")}, "nvme3 is deleting, nvme4 is dead"),
        ({"nvme3": ("live", "inaccessible")}, "nvme3 is live, its path inaccessible"),
        ({"nvme3": ("live", "change")}, "its path change"),
        ({"nvme3": ("live", "persistent-loss")}, "its path persistent-loss"),
        ({"nvme3": ("live", "")}, "nvme3 has no path to it"),
        ({"nvme3": ("connecting", ""), "nvme4": ("live", "inaccessible")}, "no live path"),
        ({}, "no controller"),
    ],
)
def test_a_multipath_namespace_needs_one_live_and_accessible_path(
    tmp_path: Path, controllers: dict[str, tuple[str, str]], problem: str
) -> None:
    _multipath(tmp_path, **controllers)
    found = path_problem("/dev/nvme3n2", sysfs=str(tmp_path))
    assert bool(found) == bool(problem)
    assert problem in found
    assert path_problem("/dev/nvme3n2p1", sysfs=str(tmp_path)) == found


@pytest.mark.parametrize(
    "state, problem", [("live", ""), ("resetting", "nvme0 is resetting"), ("new", "nvme0 is new")]
)
def test_a_namespace_with_one_controller_needs_it_live(
    tmp_path: Path, state: str, problem: str
) -> None:
    _single(tmp_path, state)
    assert problem in path_problem("/dev/nvme0n1", sysfs=str(tmp_path))
    assert bool(problem) == bool(path_problem("/dev/nvme0n1", sysfs=str(tmp_path)))


def test_a_disconnected_subsystem_has_no_namespace(tmp_path: Path) -> None:
    assert "disconnected" in path_problem("/dev/nvme9n9", sysfs=str(tmp_path))


@pytest.mark.parametrize("path", ["/dev/sda", "/dev/loop0", "/srv/nof.img", "/srv/nvme0n1"])
def test_what_is_no_namespace_has_no_paths(tmp_path: Path, path: str) -> None:
    assert path_problem(path, sysfs=str(tmp_path)) == ""


async def test_a_lost_connection_is_unknown_at_once_and_passes(tmp_path: Path) -> None:
    # A plain file of a namespace's name stands for the device, as its path state is asked by name.
    options = DeviceOptions(
        path=str(tmp_path / "nvme3n2"),
        uuid=bytes(16),
        size_bytes=8 * MIB,
        sysfs=str(tmp_path / "sys"),
        dev=str(tmp_path),
    )
    await away(_multipath, tmp_path / "sys", nvme3=("live", "optimized"))
    async with NofTier("n", options, clock=SystemClock()) as tier:
        (outcome,) = await tier.store([item("k", b"one")], FENCE)
        assert isinstance(outcome, Done)
        await away(_multipath, tmp_path / "sys", nvme3=("connecting", "optimized"))
        seen = await observe(tier, "k", "none")
        assert list(seen.states) == [MemberState.UNKNOWN] * 2
        assert seen.problem.endswith("nvme3n2: no live path (nvme3 is connecting)")
        assert isinstance((await tier.store([item("j", b"x")], FENCE))[0], Retry)
        assert isinstance((await tier.verify([member("k", b"one")]))[0], Retry)
        await away(_multipath, tmp_path / "sys", nvme3=("live", "optimized"))
        assert await states(tier, "k", "none") == [MemberState.COMPLETE, MemberState.ABSENT]


async def test_a_device_that_is_not_connected_at_the_start_is_unknown_until_it_is(
    tmp_path: Path,
) -> None:
    options = DeviceOptions(
        path=str(tmp_path / "nvme3n2"),
        uuid=bytes(16),
        size_bytes=8 * MIB,
        sysfs=str(tmp_path / "sys"),
        dev=str(tmp_path),
    )
    async with NofTier("n", options, clock=SystemClock()) as tier:
        assert await states(tier, "k") == [MemberState.UNKNOWN]
        await away(_multipath, tmp_path / "sys", nvme3=("live", "optimized"))
        assert await states(tier, "k") == [MemberState.ABSENT]
