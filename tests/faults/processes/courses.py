"""The kinds of operations: what each needs before, how it is asked for, and how it must end.

A verb that was cut short is simply asked again, which is what the messages tell a person to do.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.faults.processes.ledger import Ledger, check_tensors, record_of
from tests.faults.processes.sidecar import Sidecar
from weightctl.controller.core.records import Availability, Operation, Residency
from weightctl.controller.store.reading import read_state

WAIT = {"wait": True, "timeout_s": 120.0}


@dataclass(slots=True)
class Life:
    """One revision on its way from its import to its tombstone, and what was told about it."""

    sidecar: Sidecar
    ledger: Ledger
    identity: str
    lease_id: int = 0
    done: list[str] = field(default_factory=list)

    def ask(self, course: "Course") -> dict[str, Any]:
        """Ask for the course's verb; the answer is noted.  Raises Died, RemoteError."""
        document = self.sidecar.ask(course.verb, **course.params(self))
        self.told(document)
        return document

    def told(self, document: dict[str, Any]) -> None:
        self.ledger.told(document)
        if document["kind"] == "Lease":
            self.lease_id = document["leaseId"]

    def record(self) -> Any:
        found = record_of(self.sidecar, self.identity)
        assert found is not None
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One kind of operation."""

    name: str
    verb: str
    params: Callable[[Life], dict[str, Any]]
    words: Callable[[Life], list[str]]
    """The same as a command line."""
    ended: Callable[[Life], None]
    """Checks what must hold when it was told to be done."""


def _whole(life: Life, *residencies: Residency) -> None:
    record = life.record()
    assert record.availability is Availability.READY, record
    assert record.operation is Operation.NONE, record
    assert record.residency in residencies, record


def _deleted(life: Life) -> None:
    record = life.record()
    assert (record.availability, record.residency) == (Availability.DELETED, Residency.ABSENT)


def _no_lease(life: Life) -> None:
    with read_state(life.sidecar.state_dir) as stored:
        assert life.lease_id not in stored.state.leases


def _held(life: Life) -> None:
    assert life.lease_id in life.ledger.leases


def _change(verb: str) -> tuple[Callable[[Life], dict[str, Any]], Callable[[Life], list[str]]]:
    def params(life: Life) -> dict[str, Any]:
        return {"identity": life.identity, **WAIT}

    def words(life: Life) -> list[str]:
        more = ["--yes"] if verb == "delete" else []
        return [verb, life.identity, "--wait", "--timeout", "2m", *more]

    return params, words


def _plain(
    name: str,
    verb: str,
    params: Callable[[Life], dict[str, Any]],
    words: Callable[[Life], list[str]],
    ended: Callable[[Life], None],
) -> Course:
    return Course(name=name, verb=verb, params=params, words=words, ended=ended)


def _snapshot_file(life: Life) -> str:
    return str(life.sidecar.folder / "snapshot")


COURSES = {
    course.name: course
    for course in (
        _plain(
            "import",
            "import",
            lambda life: {"identity": life.identity, "source": str(life.sidecar.model)},
            lambda life: ["import", life.identity, str(life.sidecar.model)],
            lambda life: _whole(life, Residency.HOT),
        ),
        _plain(
            "repair",
            "repair",
            *_change("repair"),
            lambda life: _whole(life, Residency.HOT),
        ),
        _plain("evict", "evict", *_change("evict"), lambda life: _whole(life, Residency.COLD)),
        _plain(
            "rehydrate",
            "rehydrate",
            *_change("rehydrate"),
            lambda life: _whole(life, Residency.HOT),
        ),
        _plain(
            "lease acquire",
            "lease acquire",
            lambda life: {"identity": life.identity, "holder": "reader", "ttl_ms": 600_000},
            lambda life: ["lease", "acquire", life.identity, "--holder", "reader", "--ttl", "10m"],
            _held,
        ),
        _plain(
            "lease renew",
            "lease renew",
            lambda life: {"lease_id": life.lease_id, "tenant_id": "default", "ttl_ms": 700_000},
            lambda life: ["lease", "renew", str(life.lease_id), "--ttl", "700s"],
            _held,
        ),
        _plain(
            "lease release",
            "lease release",
            lambda life: {"lease_id": life.lease_id, "tenant_id": "default"},
            lambda life: ["lease", "release", str(life.lease_id)],
            _no_lease,
        ),
        _plain(
            "load",
            "load",
            lambda life: {
                "identity": life.identity,
                "folder": str(life.sidecar.folder / "out"),
                "holder": "loader",
                "force": True,
            },
            lambda life: [
                *("load", life.identity, str(life.sidecar.folder / "out")),
                *("--holder", "loader", "--force"),
            ],
            lambda life: check_tensors(life.sidecar, life.identity),
        ),
        _plain(
            "snapshot save",
            "snapshot save",
            lambda life: {"file": _snapshot_file(life)},
            lambda life: ["snapshot", "save", _snapshot_file(life)],
            lambda _: None,
        ),
        _plain("delete", "delete", *_change("delete"), _deleted),
    )
}
"""In the order of a life."""
