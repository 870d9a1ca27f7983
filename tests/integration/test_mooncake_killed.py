"""`kill -9` of the whole sidecar at each primitive, beside a real Master: all of it mends.

The rounds, the courses and what is checked after each kill are those of tests/faults/processes;
only the media are others, so what is readable is asked of the Master.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.faults.processes.courses import COURSES, Life
from tests.faults.processes.ledger import PUBLISHED, Ledger, check_tensors, identity_of
from tests.faults.processes.rounds import Point, Rounds
from tests.faults.processes.sidecar import PAYLOAD_BYTES, Sidecar
from tests.support.mooncake.lab import (
    LEASE_TTL_S,
    PATIENT,
    SOON_DISCARDED,
    Cluster,
    cluster,
    needs_wheel,
)
from weightctl.controller.core.identity import manifest_key, parse_identity
from weightctl.controller.core.records import Availability
from weightctl.controller.store.lock import holder_of
from weightctl.controller.store.oplog import verify_log
from weightctl.controller.store.reading import StoredState, read_state

pytestmark = needs_wheel

CONFIG = """\
state_dir = "{folder}/state"
[policy]
settle_s = 0.3
[import]
payload_bytes = {payload_bytes}
[resync]
working_s = 1
[mooncake]
admin = "{admin}"
master = "{master}"
lease_ttl_s = {lease_s}
claim_s = 0.1
deadline_s = 60
parking_bytes = "32MiB"
[[tier]]
name = "memory"
kind = "mooncake-memory"
[[tier]]
name = "ssd"
kind = "mooncake-local-disk"
capacity_bytes = "1GiB"
"""
# A process with nothing but the Mooncake client: the bytes of one object into a file.
_GET = """
import sys
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 32 << 20, "tcp", "", sys.argv[1]) == 0
open(sys.argv[3], "wb").write(store.get(sys.argv[2]))
store.close()
"""
# Dealt out so that one life serves a point of each course.
LIVES = (
    ("tier.*.piece:2", "tier.ssd.verify.before", "tier.memory.store.before",
     "tier.memory.drop.before"),
    ("tier.memory.store.after", "tier.memory.drop.before", "tier.memory.store.after",
     "tier.memory.drop.after"),
    ("tier.ssd.store.before", "tier.memory.drop.after", "journal.append.before:2",
     "tier.*.inventory.before"),
    ("tier.ssd.verify.after", "journal.append.after:2", "journal.append.after",
     "journal.append.before:2"),
)  # fmt: skip
COURSE_NAMES = ("import", "evict", "rehydrate", "delete")
POINTS = [
    Point(course=course, name=name, number=int(number or 1))
    for life in LIVES
    for course, (name, _, number) in zip(
        COURSE_NAMES, (point.partition(":") for point in life), strict=True
    )
]


class Beside(Sidecar):
    """A real `weightctl` whose two tiers are those of a cluster."""

    def __init__(self, real: Cluster, folder: Path) -> None:
        self.real = real
        super().__init__(folder, ("memory", "ssd"))

    def take_over(self) -> None:
        """Let the next start take the cluster from another store."""
        text = self.config.read_text(encoding="utf-8")
        self.config.write_text(text.replace("[mooncake]", "[mooncake]\nadopt = true"), "utf-8")

    def _configuration(self, abandon_ms: int, deadline_s: float, lease_ms: int) -> str:
        del abandon_ms, deadline_s, lease_ms
        return CONFIG.format(
            folder=self.folder,
            payload_bytes=PAYLOAD_BYTES,
            admin=self.real.admin,
            master=self.real.master,
            lease_s=LEASE_TTL_S,
        )


class MasterLedger(Ledger):
    """Promises checked against what the Master shows."""

    def check_dead(self, sidecar: Sidecar) -> None:
        assert holder_of(sidecar.state_dir) == 0, "the dead still hold the state directory"
        report = verify_log(sidecar.state_dir)
        assert report.ok, report.problem
        with read_state(sidecar.state_dir) as stored:
            self.check_records(stored)
            check_shown(sidecar, stored)

    def check_settled(self, sidecar: Sidecar, *revisions: str) -> None:
        with read_state(sidecar.state_dir) as stored:
            self.check_records(stored)
            check_shown(sidecar, stored)
            alive = {
                member
                for record in stored.state.metadata.values()
                if record.availability is not Availability.DELETED
                for member in stored.members(record.manifest.payload_group_id).keys
            }
        assert shown(sidecar) == alive, "what is deleted, or was never finished, is left"
        for name in revisions:
            check_tensors(sidecar, name)


def shown(sidecar: Sidecar) -> set[str]:
    assert isinstance(sidecar, Beside)
    keys = sidecar.real.get("/get_all_keys").split()
    return {key for key in keys if key.startswith("weights/")}


def check_shown(sidecar: Sidecar, stored: StoredState) -> None:
    """The Master shows a whole replica of each member of each published revision."""
    assert isinstance(sidecar, Beside)
    for record in stored.state.metadata.values():
        if record.availability not in PUBLISHED:
            continue
        members = stored.members(record.manifest.payload_group_id)
        for index, key in enumerate(members.keys):
            entry = sidecar.real.entry(key)
            sizes = [one["size_"] for one in entry["values"] or ()]
            sizes += [one["object_size"] for one in entry["local_disk_values"] or ()]
            assert members.sizes_bytes[index] in sizes, f"{key}: {json.dumps(dict(entry))}"


class MooncakeRounds(Rounds):
    """Rounds of four courses only: what the others do has nothing to do with Mooncake."""

    def __init__(self, sidecar: Beside) -> None:
        super().__init__(sidecar)
        self.ledger = MasterLedger()

    def led_up_to(self, name: str) -> Life:
        before = COURSE_NAMES[: COURSE_NAMES.index(name)]
        if self._life is None or any(done not in before for done in self._life.done):
            self._lives += 1
            self._life = Life(self.sidecar, self.ledger, identity_of(self._lives))
        for earlier in self._missing(before):
            self.lead(self._life, COURSES[earlier])
        return self._life

    def _missing(self, before: Sequence[str]) -> list[str]:
        assert self._life is not None
        return [earlier for earlier in before if earlier not in self._life.done]


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MooncakeRounds]:
    folder = tmp_path_factory.mktemp("cluster")
    with cluster(folder, PATIENT, *SOON_DISCARDED) as real:
        beside = Beside(real, folder / "sidecar")
        try:
            beside.start()
            yield MooncakeRounds(beside)
        finally:
            beside.kill()


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_a_kill_there_loses_nothing_and_the_same_verb_ends_it(
    rounds: MooncakeRounds, point: Point
) -> None:
    assert rounds.hit(point), f"not reached: {rounds.score.missed}"


def test_a_new_store_takes_the_cluster_over_and_adopts_what_the_lost_one_had(
    rounds: MooncakeRounds, tmp_path: Path
) -> None:
    """The last here: the first store has lost the cluster then."""
    life = rounds.led_up_to("evict")
    old = rounds.sidecar
    assert isinstance(old, Beside)
    old.terminate()
    kept = tmp_path / "manifest"
    command = [sys.executable, "-c", _GET, old.real.master]
    subprocess.run(
        [*command, manifest_key(parse_identity(life.identity)), str(kept)],
        check=True,
        capture_output=True,
    )
    words = ("adopt", life.identity, "--manifest", str(kept))
    beside = Beside(old.real, tmp_path)
    refused = beside.run(*words)
    assert (refused.code, "belongs to another store" in refused.err) == (1, True)
    beside.take_over()
    beside.arm("journal.append.before=kill")
    assert beside.run(*words).killed
    beside.disarm()
    assert beside.run(*words).document["verdict"] == "adopted"
    beside.start()
    try:
        beside.ask("evict", identity=life.identity, wait=True, timeout_s=120.0)
        check_tensors(beside, life.identity)
    finally:
        beside.kill()
