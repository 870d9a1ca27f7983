"""What callers were told, and what was durable; neither is ever taken back.

Told: each answer to a verb.  Seen: the records on disk whenever the process was dead.
"""

import json
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.processes.media import leftovers, replicas
from tests.faults.processes.sidecar import PATIENCE_S, Sidecar
from weightctl.controller.api.client import RemoteError
from weightctl.controller.core.identity import Identity, parse_identity
from weightctl.controller.core.records import Availability, RevisionMetadata
from weightctl.controller.store.lock import holder_of
from weightctl.controller.store.oplog import verify_log
from weightctl.controller.store.reading import StoredState, read_state

ENDING = (Availability.DELETING, Availability.DELETED)
PUBLISHED = (Availability.READY, Availability.DEGRADED)


@dataclass(slots=True)
class Promise:
    """The least that a revision's record must say from now on."""

    generation: int = 0
    ending: bool = False
    deleted: bool = False
    manifest: str = ""


@dataclass(slots=True)
class Ledger:
    """Promises of one state directory, and how they are checked."""

    revisions: dict[str, Promise] = field(default_factory=dict)
    leases: dict[int, tuple[str, int]] = field(default_factory=dict)
    """By id: revision and expiry, of those that were given and not given back."""
    returned: set[int] = field(default_factory=set)
    last_lease: int = 0
    last_operation: int = 0
    term: int = 0
    sequence: int = 0

    def told(self, document: dict[str, Any]) -> None:
        """Note an answer."""
        match document["kind"]:
            case "Revision":
                promise = self._promise(document["identity"])
                promise.generation = max(promise.generation, document["metadataGeneration"])
                promise.ending |= document["availability"] in {"DELETING", "DELETED"}
                promise.deleted |= document["availability"] == "DELETED"
            case "Import":
                promise = self._promise(document["identity"])
                promise.generation = max(promise.generation, document["metadataGeneration"])
            case "Lease":
                known = self.leases.get(document["leaseId"])
                if known is None:
                    assert document["leaseId"] > self.last_lease, "a lease's number is used again"
                self.last_lease = max(self.last_lease, document["leaseId"])
                expiry = max(document["expiresAtMs"], known[1] if known else 0)
                self.leases[document["leaseId"]] = (document["identity"], expiry)
            case "LeaseList":
                for item in document["items"]:
                    self.leases.pop(item["leaseId"], None)
                    self.returned.add(item["leaseId"])

    def asked_to_release(self, lease_id: int) -> None:
        """From now on the lease may be there or not, until an answer tells."""
        self.leases.pop(lease_id, None)

    def _promise(self, identity: str) -> Promise:
        return self.revisions.setdefault(identity, Promise())

    # --- checks -----------------------------------------------------------------------------------

    def check_dead(self, sidecar: Sidecar) -> None:
        """After a kill, before anybody repairs anything."""
        assert holder_of(sidecar.state_dir) == 0, "the dead still hold the state directory"
        report = verify_log(sidecar.state_dir)
        assert report.ok, report.problem
        with read_state(sidecar.state_dir) as stored:
            assert not stored.problem, stored.problem
            self.check_records(stored)
            check_readable(sidecar, stored)

    def check_records(self, stored: StoredState) -> None:
        """Nothing that was told or durable has been taken back."""
        state = stored.state
        assert stored.last_sequence >= self.sequence, "the log is shorter than it was"
        assert stored.term >= self.term, "the term went back"
        self.sequence, self.term = stored.last_sequence, stored.term
        for name, promise in self.revisions.items():
            record = state.metadata.get(parse_identity(name))
            assert record is not None, f"{name} is forgotten"
            self._check_record(name, promise, record)
        for record in state.metadata.values():
            promise = self._promise(str(record.identity))
            promise.generation = record.metadata_generation
            promise.ending = record.availability in ENDING
            promise.deleted = record.availability is Availability.DELETED
            promise.manifest = record.manifest.manifest_sha256
        self._check_leases(stored)
        newest = max(state.operations, default=0)
        assert state.next_operation_id > newest
        assert state.next_operation_id > self.last_operation, "operation numbers went back"
        self.last_operation = newest

    def _check_record(self, name: str, promise: Promise, record: RevisionMetadata) -> None:
        text = f"{name}: {promise} became {record}"
        assert record.metadata_generation >= promise.generation, text
        assert record.availability in ENDING or not promise.ending, text
        assert record.availability is Availability.DELETED or not promise.deleted, text
        if promise.manifest:
            assert record.manifest.manifest_sha256 == promise.manifest, text

    def _check_leases(self, stored: StoredState) -> None:
        assert stored.state.next_lease_id > self.last_lease, "lease numbers went back"
        now_ms = time.time_ns() // 1_000_000
        for number, (name, expires_at_ms) in self.leases.items():
            if expires_at_ms > now_ms:
                lease = stored.state.leases.get(number)
                assert lease is not None, f"live lease {number} on {name} is gone"
                assert lease.expires_at_ms >= expires_at_ms, f"lease {number} was shortened"
        assert not self.returned & stored.state.leases.keys(), "a lease came back"

    def check_settled(self, sidecar: Sidecar, *revisions: str) -> None:
        """After convergence: the right tensors, no leftovers, nothing more is written."""
        with read_state(sidecar.state_dir) as stored:
            self.check_records(stored)
            check_readable(sidecar, stored)
        for name in revisions:
            check_tensors(sidecar, name)
        assert not leftovers(sidecar.folder, sidecar.tiers)


def check_readable(sidecar: Sidecar, stored: StoredState) -> None:
    """Each member of each published revision has a replica with the right bytes somewhere."""
    found_here = replicas(sidecar.folder, sidecar.tiers)
    lying = {(found.group_id, found.key, found.sha256) for found in found_here}
    for record in stored.state.metadata.values():
        if record.availability in PUBLISHED:
            members = stored.members(record.manifest.payload_group_id)
            assert len(members) == record.manifest.payload_count + 1
            for index, key in enumerate(members.keys):
                wanted = (members.group_id, key, members.digest(index))
                assert wanted in lying, f"{record.identity}: {key} is nowhere"


def check_tensors(sidecar: Sidecar, name: str) -> None:
    """What `load` writes is what was imported, tensor by tensor, byte by byte."""
    target = sidecar.folder / "out"
    asked = {"identity": name, "folder": str(target), "holder": "oracle", "force": True}
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            sidecar.ask("load", **asked)
            break
        except RemoteError as refusal:  # a slow machine may outlive the short lease
            if refusal.code != "LEASE_EXPIRED" or time.monotonic() > until:
                raise
    assert tensors_in(target) == {
        tensor: content for tensor, (_, _, content) in sidecar.tensors.items()
    }
    for path in target.iterdir():
        path.unlink()


def tensors_in(folder: Path) -> dict[str, bytes]:
    """The tensors of the one safetensors file of a folder."""
    (path,) = folder.iterdir()
    raw = path.read_bytes()
    (size,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + size])
    header.pop("__metadata__", None)
    data = raw[8 + size :]
    return {name: data[slice(*entry["data_offsets"])] for name, entry in header.items()}


def identity_of(number: int) -> str:
    return f"lab/model/v1@{number}"


def record_of(sidecar: Sidecar, name: str) -> RevisionMetadata | None:
    """The record on disk."""
    with read_state(sidecar.state_dir) as stored:
        found: Identity = parse_identity(name)
        return stored.state.metadata.get(found)
