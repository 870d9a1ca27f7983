"""A real sidecar beside a real Master, for rounds of kills; the rounds are those of tests/faults.

What is readable is asked of the Master.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from tests.faults.processes.courses import COURSES, Life
from tests.faults.processes.ledger import PUBLISHED, Ledger, check_tensors, identity_of
from tests.faults.processes.rounds import Point, Rounds
from tests.faults.processes.sidecar import PAYLOAD_BYTES, Sidecar
from tests.support.mooncake.lab import LEASE_TTL_S, Cluster
from weightctl.controller.core.records import Availability
from weightctl.controller.store.lock import holder_of
from weightctl.controller.store.oplog import verify_log
from weightctl.controller.store.reading import StoredState, read_state

COURSE_NAMES = ("import", "evict", "rehydrate", "delete")
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
name = "{cold}"
kind = "{cold_kind}"
capacity_bytes = "1GiB"
"""


def dealt(lives: Sequence[Sequence[str]]) -> list[Point]:
    """Points of lives, one for each course: `NAME` or `NAME:NUMBER`."""
    return [
        Point(course=course, name=name, number=int(number or 1))
        for life in lives
        for course, (name, _, number) in zip(
            COURSE_NAMES, (point.partition(":") for point in life), strict=True
        )
    ]


class Beside(Sidecar):
    """A real `weightctl` whose two tiers are those of a cluster: memory, and a cold one."""

    def __init__(
        self,
        real: Cluster,
        folder: Path,
        cold: str = "ssd",
        cold_kind: str = "mooncake-local-disk",
    ) -> None:
        self.real = real
        self._cold_kind = cold_kind
        super().__init__(folder, ("memory", cold))

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
            cold=self.tiers[1],
            cold_kind=self._cold_kind,
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
            for kind in ("local_disk_values", "disk_values"):
                sizes += [one["object_size"] for one in entry[kind] or ()]
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
