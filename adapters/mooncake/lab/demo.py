"""A whole life beside a real Master: `python -m weightctl.adapters.mooncake.lab.demo MODEL`.

Layer: a tier; blocking, no part of a running controller.  Starts a Master with two hosts, drives
the `weightctl` command as a person would, shows the plan before each step and what the Master
itself says after it.  Ends with 1 at the first step whose claim is not confirmed: what lies where
by the Master's own words, contents by comparing each tensor with the source.
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
from weightctl.adapters.mooncake.lab.reading import Tensors, other_process, tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from weightctl.adapters.mooncake.lab.cluster import Cluster

IDENTITY = "demo/model/main@1"
LOOKUPS = ("get_replica_list", "exist_key", "batch_exist_key", "batch_get_replica_list")
"""Requests that take a lease, as the Master counts them."""
BUSY = 5
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
        self._folder = folder
        self._config = folder / "weightctl.toml"
        connection = {"admin": real.admin, "master": real.master}
        lines = [f'{name} = "{value}"' for name, value in connection.items()]
        lines += [f"lease_ttl_s = {LEASE_TTL_S}", "claim_s = 0.1", 'parking_bytes = "512MiB"']
        self._config.write_text(_CONFIG.format(connection="\n".join(lines)), encoding="ascii")
        self._state = folder / "state"
        self._source: Tensors = {}
        self._objects = 0

    def tell(self) -> None:
        """All steps.  Raises DemoError at the first that fails."""
        self._source = tensors_of(Path(self._model))
        for name, about, plan, act in (
            ("import", "put through Mooncake, offloaded by the hosts", self._foresee, self._import),
            ("load", "read through Mooncake, under a lease", self._keep, self._load),
            ("other reader", "one that has Mooncake's client alone", self._keep, self._read),
            ("evict", "cleared or parked; the importing client has ended", self._dry, self._evict),
            ("rehydrate", "promoted by the hosts, from their disks", self._dry, self._rehydrate),
            ("lease", "a live lease refuses eviction and deletion", self._dry_evict, self._lease),
            ("delete", "payloads first, manifest last; a tombstone stays", self._dry, self._delete),
        ):
            _say(f"\n== {name}: {about}")
            self._without_leases(plan, name)
            act()
            _say(f"   the Master says: {self._told()}")

    # --- plans ------------------------------------------------------------------------------------

    def _without_leases(self, plan: Callable[[str], None], name: str) -> None:
        """Ask for the plan; the Master must say that it changed nothing and took no lease."""
        before = (self._told(), self._lookups())
        plan(name)
        if (self._told(), self._lookups()) != before:
            raise DemoError("the Master says that the plan was more than a look")
        _say("   the Master says: nothing has changed, and no lease was taken by this look")

    def _foresee(self, _: str) -> None:
        self._run("import", IDENTITY, self._model, "--dry-run")
        plan = self._ask("import", IDENTITY, self._model, "--dry-run")
        self._objects = len(plan["members"])

    def _keep(self, _: str) -> None:
        self._run("plan", IDENTITY)

    def _dry(self, verb: str) -> None:
        self._run(verb, IDENTITY, "--dry-run")

    def _dry_evict(self, _: str) -> None:
        self._dry("evict")

    # --- steps ------------------------------------------------------------------------------------

    def _import(self) -> None:
        done = self._do("import", IDENTITY, self._model)
        _say(f"  {done['movedBytes']} bytes in all are now in {' and '.join(done['tiers'])}")
        self._expect("all that was planned, in memory and on disks", memory=True, disk=True)

    def _load(self) -> None:
        folder, before = self._folder / "loaded", self._lookups()
        done = self._do("load", IDENTITY, str(folder))
        tiers = ", ".join(done["bytesByTier"])
        _say(f"  {done['verifiedBytes']} bytes read and verified, from {tiers}")
        self._same(tensors_of(folder / "model.safetensors"))
        lease = [entry["summary"] for entry in self._ask("oplog", "show")["items"][-2:]]
        for told in lease:
            _say(f"  the op-log: {told}")
        if not all("lease" in told for told in lease):
            raise DemoError("a lease was to be taken and given back")
        if self._lookups() == before:
            raise DemoError("the Master says that nobody has read")
        self._expect("the same as before", memory=True, disk=True)

    def _read(self) -> None:
        key = self._ask("keys", IDENTITY)["manifestKey"]
        _say(f"$ python -c 'import mooncake.store ...'   # {key}, then an object that it names")
        found = other_process(self._real.master, key)
        _say(f"  read {found.key} ({found.size_bytes} bytes)")
        name, tensor = found.tensor
        if self._source.get(name) != tensor:
            raise DemoError(f"{name} is not what the source has")
        _say(f"  tensor {name} {tensor[0]} {list(tensor[1])}: byte for byte that of the source")

    def _evict(self) -> None:
        self._change("evict", "--wait", "--timeout", "5m")
        self._expect("all on disks, none in memory", memory=False, disk=True)

    def _rehydrate(self) -> None:
        self._change("rehydrate", "--wait", "--timeout", "5m")
        self._expect("all in memory and on disks", memory=True, disk=True)

    def _lease(self) -> None:
        taken = self._do("lease", "acquire", IDENTITY, "--holder", "demo", "--ttl", "10m")
        _say(f"  lease {taken['leaseId']} of demo, live: {taken['live']}")
        self._run("evict", IDENTITY, "--dry-run", wanted=BUSY)
        self._run("evict", IDENTITY, wanted=BUSY)
        self._run("delete", IDENTITY, "--yes", wanted=BUSY)
        self._expect("the same as before", memory=True, disk=True)
        self._run("lease", "release", str(taken["leaseId"]))

    def _delete(self) -> None:
        self._change("delete", "--yes", "--wait", "--timeout", "5m")
        self._objects = 0
        self._expect("nothing is left", memory=False, disk=False)

    # --- commands ---------------------------------------------------------------------------------

    def _run(self, *words: str, wanted: int = 0, shown: bool = True) -> str:
        """One command as a person types it; what it says on both streams is shown."""
        if shown:
            _say(f"$ weightctl {' '.join(words)}")
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
        if shown or done.returncode != wanted:
            for line in (done.stdout + done.stderr).rstrip().splitlines():
                _say(f"  {line}")
        if done.returncode != wanted:
            raise DemoError(f"it ended with {done.returncode}, {wanted} was expected")
        return done.stdout

    def _change(self, verb: str, *words: str) -> None:
        done = self._do(verb, IDENTITY, *words)
        generation = done["metadataGeneration"]
        _say(f"  observed: {done['availability']}, {done['residency']}, generation {generation}")

    def _do(self, *words: str) -> dict[str, Any]:
        """The document of a command that is shown, for who says the important of it."""
        _say(f"$ weightctl {' '.join(words)}")
        return self._ask(*words)

    def _ask(self, *words: str) -> dict[str, Any]:
        """The document of a command that is not shown."""
        document: dict[str, Any] = json.loads(self._run(*words, "-o", "json", shown=False))
        return document

    def _same(self, loaded: Tensors) -> None:
        wrong = [name for name in self._source if loaded.get(name) != self._source[name]]
        if wrong or len(loaded) != len(self._source):
            raise DemoError(f"what was loaded differs from the source in {wrong or 'its names'}")
        _say(f"  {len(loaded)} tensors: each is byte for byte that of the source")

    # --- what the Master says ---------------------------------------------------------------------

    def _held(self) -> tuple[int, int, int]:
        """(objects, with a memory replica, with a disk replica) under managed names."""
        keys = [
            key for key in self._real.get("/get_all_keys").split() if key.startswith("weights/")
        ]
        if not keys:
            return 0, 0, 0
        path = "/batch_query_keys?keys=" + ",".join(quote(key) for key in keys)
        entries: dict[str, dict[str, Any]] = json.loads(self._real.get(path))["data"]
        return (
            len(keys),
            sum(bool(entry["values"]) for entry in entries.values()),
            sum(bool(entry["local_disk_values"]) for entry in entries.values()),
        )

    def _told(self) -> str:
        return "{} objects, {} in memory, {} on disks".format(*self._held())

    def _lookups(self) -> int:
        """How many requests took a lease, ever."""
        lines = (line.split() for line in self._real.get("/metrics").splitlines())
        counts = {line[0]: float(line[1]) for line in lines if len(line) == 2}  # noqa: PLR2004
        return int(sum(counts.get(f"master_{name}_requests_total", 0) for name in LOOKUPS))

    def _expect(self, what: str, *, memory: bool, disk: bool) -> None:
        count = self._objects
        wanted = (count, count * memory, count * disk)
        try:
            until(f"the Master says: {what}", lambda: self._held() == wanted)
        except TimeoutError as error:
            raise DemoError(f"{error}; it says: {self._told()}") from None


class DemoError(Exception):
    """A step did not do what it claims."""


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


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
        with cluster(folder, "--client_ttl=120", segment_mib=512) as real:
            try:
                Demo(real, folder, sys.argv[1]).tell()
            except DemoError as error:
                _say(f"FAILED: {error}")
                return 1
    _say("\nevery step was confirmed by the Master")
    return 0


if __name__ == "__main__":
    sys.exit(main())
