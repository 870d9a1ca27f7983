"""A whole life beside a real Master: `python -m weightctl.adapters.mooncake.lab.demo MODEL`.

Layer: a tier; blocking, no part of a running controller.  Starts a Master with two hosts, drives
the `weightctl` command as a person would, shows the plan before each step and what the Master
itself says after it.  Ends with 1 at the first step whose claim the Master does not confirm.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from weightctl.adapters.mooncake.lab.cluster import LEASE_TTL_S, cluster, until, why_not

if TYPE_CHECKING:
    from collections.abc import Callable

    from weightctl.adapters.mooncake.lab.cluster import Cluster

IDENTITY = "demo/model/main@1"
_CONFIG = """
[policy]
settle_s = 1.0

[mooncake]
{connection}

[[tier]]
name = "memory"
kind = "mooncake-memory"

[[tier]]
name = "ssd"
kind = "mooncake-local-disk"
capacity_bytes = "4GiB"
"""


class Demo:
    """One telling over a running cluster."""

    def __init__(self, real: Cluster, folder: Path, model: str) -> None:
        self._real = real
        self._model = model
        self._config = folder / "weightctl.toml"
        connection = {"admin": real.admin, "master": real.master}
        lines = [f'{name} = "{value}"' for name, value in connection.items()]
        lines += [f"lease_ttl_s = {LEASE_TTL_S}", "claim_s = 0.1", 'parking_bytes = "512MiB"']
        self._config.write_text(_CONFIG.format(connection="\n".join(lines)), encoding="ascii")
        self._state = folder / "state"

    def tell(self) -> None:
        """All steps.  Raises DemoError at the first that fails."""
        self._step("import", "put through Mooncake, offloaded by the hosts", self._import)
        self._step("evict", "by clearing, or parking: the importing client has ended", self._evict)
        self._step("rehydrate", "promotion by the hosts, from their disks", self._rehydrate)
        self._step("lease", "a live lease refuses eviction and deletion", self._lease)
        self._step("delete", "payload first, manifest last; a tombstone stays", self._delete)

    def _step(self, name: str, about: str, act: Callable[[], None]) -> None:
        sys.stdout.write(f"\n== {name}: {about}\n")
        act()
        sys.stdout.write(f"   the Master says: {self._told()}\n")

    def _import(self) -> None:
        self._run("import", IDENTITY, self._model)
        self._expect("memory and disk", lambda held: held["memory"] == held["disk"] == held["all"])

    def _evict(self) -> None:
        self._run("evict", IDENTITY, "--dry-run")
        self._run("evict", IDENTITY, "--wait", "--timeout", "5m")
        self._expect("disk only", lambda held: not held["memory"] and held["disk"] == held["all"])

    def _rehydrate(self) -> None:
        self._run("rehydrate", IDENTITY, "--dry-run")
        self._run("rehydrate", IDENTITY, "--wait", "--timeout", "5m")
        self._expect("memory and disk", lambda held: held["memory"] == held["disk"] == held["all"])

    def _lease(self) -> None:
        lease = json.loads(
            self._run("lease", "acquire", IDENTITY, "--holder", "demo", "-o", "json")
        )
        for verb in ("evict", "delete"):
            self._run(verb, IDENTITY, *(["--yes"] if verb == "delete" else []), wanted=5)
        self._run("lease", "release", str(lease["leaseId"]))

    def _delete(self) -> None:
        self._run("delete", IDENTITY, "--dry-run")
        self._run("delete", IDENTITY, "--yes", "--wait", "--timeout", "5m")
        self._expect("nothing", lambda held: held["all"] == 0)

    def _run(self, *words: str, wanted: int = 0) -> str:
        sys.stdout.write(f"$ weightctl {' '.join(words)}\n")
        sys.stdout.flush()
        done = subprocess.run(  # noqa: S603 - our own command
            [
                *(sys.executable, "-m", "weightctl.controller.cli.main"),
                *words,
                *("--config", str(self._config), "--state-dir", str(self._state)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        shown = (done.stdout + done.stderr).rstrip().splitlines()
        sys.stdout.writelines(f"  {line}\n" for line in shown)
        if done.returncode != wanted:
            raise DemoError(f"it ended with {done.returncode}, {wanted} was expected")
        return done.stdout

    def _held(self) -> dict[str, int]:
        keys = [
            key for key in self._real.get("/get_all_keys").split() if key.startswith("weights/")
        ]
        if not keys:
            return {"all": 0, "memory": 0, "disk": 0}
        path = "/batch_query_keys?keys=" + ",".join(quote(key) for key in keys)
        entries: dict[str, dict[str, Any]] = json.loads(self._real.get(path))["data"]
        return {
            "all": len(keys),
            "memory": sum(bool(entry["values"]) for entry in entries.values()),
            "disk": sum(bool(entry["local_disk_values"]) for entry in entries.values()),
        }

    def _told(self) -> str:
        held = self._held()
        return f"{held['all']} objects, {held['memory']} in memory, {held['disk']} on disks"

    def _expect(self, what: str, holds: Callable[[dict[str, int]], bool]) -> None:
        try:
            until(f"the Master says: {what}", lambda: holds(self._held()))
        except TimeoutError as error:
            raise DemoError(f"{error}; it says: {self._told()}") from None


class DemoError(Exception):
    """A step did not do what it claims."""


def main() -> int:
    """Run the demo; 0 when every step was confirmed by the Master."""
    if len(sys.argv) != 2:  # noqa: PLR2004 - the name and one argument
        sys.stderr.write(
            "usage: python -m weightctl.adapters.mooncake.lab.demo MODEL.safetensors\n"
        )
        return 2
    problem = why_not()
    if problem:
        sys.stderr.write(f"the demo cannot run\n{problem}\nsee adapters/mooncake/README.md\n")
        return 1
    with tempfile.TemporaryDirectory(prefix="weightctl-mooncake-") as name:
        folder = Path(name)
        with cluster(folder, segment_mib=512) as real:
            try:
                Demo(real, folder, sys.argv[1]).tell()
            except DemoError as error:
                sys.stdout.write(f"FAILED: {error}\n")
                return 1
    sys.stdout.write("\nevery step was confirmed by the Master\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
