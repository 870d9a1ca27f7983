"""Whether a fabrics device has a path that is live.  Layer: nof tier; reads sysfs only.

The kernel keeps the block device of a namespace whose connection is lost, and queues or fails what
is asked of it.  Invariant: nothing is asked of a device without a live path, so that a lost
connection is UNKNOWN at once and not after a deadline.
"""

from __future__ import annotations

import re
from pathlib import Path

_NAMESPACE = re.compile(r"(nvme(\d+)n(\d+))(p\d+)?")
_CONTROLLER = re.compile(r"nvme\d+")
_USABLE_ANA = {"optimized", "non-optimized"}


def path_problem(device: str, *, sysfs: str = "/sys", dev: str = "/dev") -> str:
    """Why the device cannot be asked now, or an empty text; empty for what is no NVMe namespace.

    Natively multipathed, the namespace's parent is the subsystem, which lists its controllers; each
    path is a hidden namespace below its controller and has an ANA state.  Otherwise the parent is
    the one controller.
    """
    node = Path(device).resolve()
    match = _NAMESPACE.fullmatch(node.name)
    if match is None or node.parent != Path(dev):
        return ""
    block = Path(sysfs) / "block" / match[1]
    if not block.exists():
        return f"the kernel has no namespace {match[1]}: its subsystem is disconnected"
    parent = (block / "device").resolve()
    if (parent / "state").exists():
        problem = _controller_problem(parent)
        return f"{match[1]}: {problem}" if problem else ""
    controllers = sorted(p for p in _entries(parent) if _CONTROLLER.fullmatch(p.name))
    if not controllers:
        return f"{match[1]}: its subsystem has no controller"
    hidden = re.compile(rf"nvme{match[2]}c\d+n{match[3]}")
    problems = [_path_problem(controller, hidden) for controller in controllers]
    return "" if "" in problems else f"{match[1]}: no live path ({', '.join(problems)})"


def _controller_problem(controller: Path) -> str:
    state = _read(controller / "state")
    return "" if state == "live" else f"{controller.name} is {state or 'gone'}"


def _path_problem(controller: Path, hidden: re.Pattern[str]) -> str:
    problem = _controller_problem(controller)
    if problem:
        return problem
    paths = [path for path in _entries(controller.resolve()) if hidden.fullmatch(path.name)]
    if not paths:
        return f"{controller.name} has no path to it"
    states = [_read(path / "ana_state") or "optimized" for path in paths]
    if _USABLE_ANA.intersection(states):
        return ""
    return f"{controller.name} is live, its path {states[0]}"


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
