"""Drives the pure state: prepare, publish, and replay of what was emitted into a second state."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.model.decisions import Answer, Row
from tests.model.translate import (
    identity_of,
    name_of,
    plain_lease,
    plain_operation,
    plain_record,
    plain_view,
    reference_of,
)
from weightctl.controller.core.identity import TOKEN_SEPARATOR
from weightctl.controller.core.leases import (
    prepare_acquire,
    prepare_expire,
    prepare_release,
    prepare_renew,
    publish_lease,
)
from weightctl.controller.core.lifecycle import (
    prepare_abort,
    prepare_begin,
    prepare_commit,
    prepare_delete,
    prepare_finish_delete,
    prepare_observation,
    publish_metadata,
)
from weightctl.controller.core.mutations import LeaseMutation, MetadataMutation, Mutation
from weightctl.controller.core.operations import (
    prepare_finish,
    prepare_progress,
    publish_operation,
)
from weightctl.controller.core.oplog import emitted, key_of
from weightctl.controller.core.oplog import identity_of as concerned
from weightctl.controller.core.queries import get_revision, list_revisions, query_operation
from weightctl.controller.core.records import Availability, Residency, Snapshot
from weightctl.controller.core.replay import Entry, Replay
from weightctl.controller.core.snapshot import export_snapshot, restore_snapshot
from weightctl.controller.core.starts import prepare_repair, prepare_start
from weightctl.controller.errors import WeightError

METADATA: dict[str, Callable[..., MetadataMutation]] = {
    "begin": prepare_begin,
    "commit": prepare_commit,
    "abort": prepare_abort,
    "delete": prepare_delete,
    "finish_delete": prepare_finish_delete,
    "observe": prepare_observation,
}
WORDS = {
    "expected": "expected_metadata_generation",
    "tenant": "tenant_id",
    "ttl": "ttl_ms",
    "target": "target_residency",
    "members": "member_count",
    "processed": "processed_members",
    "total": "total_members",
    "short": "copies_short",
}


def arguments_of(request: Row) -> dict[str, Any]:
    """Give a request's arguments under the product's names and types."""
    known = {WORDS.get(key, key): value for key, value in request.items() if key != "call"}
    if "name" in known:
        name = known.pop("name")
        known["identity"] = None if name is None else identity_of(name)
    if "ref" in known:
        known["manifest"] = reference_of(known.pop("ref"), request["name"])
        known["group"] = None
    if "bytes" in known:
        known["expected_payload_count"] = known.pop("count")
        known["expected_logical_bytes"] = known.pop("bytes")
    if "av" in known:
        known["availability"] = Availability[known.pop("av")]
    for key in ("res", "target_residency"):
        if key in known:
            word = "residency" if key == "res" else key
            known[word] = Residency[known.pop(key)]
    return known


class PureDriver:
    """A state and a second one that only replays what the first one emitted."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.state = restore_snapshot(snapshot)
        self.replay = Replay(restore_snapshot(snapshot))

    def ask(self, request: Row, now: int) -> Answer:
        call = request["call"]
        handler = self._metadata if call in METADATA else getattr(self, f"_{call}")
        try:
            return "ok", handler(request, arguments_of(request), now)
        except WeightError as error:
            return "error", error.code.name

    def snapshot(self) -> Snapshot:
        return export_snapshot(self.state)

    def audit(self) -> None:
        """A restored copy is the same, and so is the state that only replayed."""
        snapshot = self.snapshot()
        assert export_snapshot(restore_snapshot(snapshot)) == snapshot
        replayed = export_snapshot(self.replay.state)
        assert snapshot == replace(
            replayed,
            next_lease_id=snapshot.next_lease_id,
            next_operation_id=snapshot.next_operation_id,
        )
        assert replayed.next_lease_id <= snapshot.next_lease_id
        assert replayed.next_operation_id <= snapshot.next_operation_id

    def _log(self, mutation: Mutation) -> None:
        for payload in emitted(mutation):
            entry = Entry(
                sequence=self.replay.expected_sequence,
                tenant_id=concerned(payload).tenant_id,
                key=key_of(payload),
                payload=payload,
            )
            self.applied(entry)

    def applied(self, entry: Entry) -> None:
        assert self.replay.apply(entry)

    def _metadata(self, request: Row, arguments: dict[str, Any], now: int) -> Row:
        mutation = METADATA[request["call"]](self.state, **arguments, now_ms=now)
        record = publish_metadata(self.state, mutation)
        self._log(mutation)
        assert record is not None
        return plain_record(record)

    def _leased(self, mutation: LeaseMutation) -> Row:
        lease = publish_lease(self.state, mutation)
        self._log(mutation)
        return plain_lease(lease)

    def _acquire(self, _: Row, arguments: dict[str, Any], now: int) -> Row:
        return self._leased(prepare_acquire(self.state, **arguments, now_ms=now))

    def _renew(self, _: Row, arguments: dict[str, Any], now: int) -> Row:
        arguments["lease_id"] = arguments.pop("id")
        return self._leased(prepare_renew(self.state, **arguments, now_ms=now))

    def _release(self, _: Row, arguments: dict[str, Any], now: int) -> None:
        arguments["lease_id"] = arguments.pop("id")
        mutation = prepare_release(self.state, **arguments)
        publish_lease(self.state, mutation)
        self._log(mutation)

    def _expire(self, _: Row, arguments: dict[str, Any], now: int) -> list[int]:
        mutations = prepare_expire(self.state, **arguments, now_ms=now)
        for mutation in mutations:
            publish_lease(self.state, mutation)
            self._log(mutation)
        return [mutation.lease_id for mutation in mutations]

    def _start(self, request: Row, arguments: dict[str, Any], now: int) -> Row:
        prepare = prepare_start if request["call"] == "start" else prepare_repair
        mutation = prepare(self.state, **arguments, now_ms=now)
        operation = publish_operation(self.state, mutation)
        self._log(mutation)
        return plain_operation(operation)

    _repair = _start

    def _progress(self, request: Row, arguments: dict[str, Any], now: int) -> Row:
        arguments["operation_id"] = arguments.pop("id")
        if request["call"] == "finish":
            arguments["observed_residency"] = arguments.pop("residency")
        prepare = prepare_progress if request["call"] == "progress" else prepare_finish
        mutation = prepare(self.state, **arguments, now_ms=now)
        operation = publish_operation(self.state, mutation)
        self._log(mutation)
        return plain_operation(operation)

    _finish = _progress

    def _get(self, _: Row, arguments: dict[str, Any], now: int) -> Row:
        return plain_view(get_revision(self.state, **arguments, now_ms=now))

    def _query(self, _: Row, arguments: dict[str, Any], now: int) -> Row:
        return plain_operation(
            query_operation(
                self.state, operation_id=arguments["id"], tenant_id=arguments["tenant_id"]
            )
        )

    def _list(self, request: Row, _: dict[str, Any], now: int) -> tuple[list[Any], bool]:
        tenant, namespace, resource = request["resource"]
        after = request["after"]
        token = "" if after is None else f"{after[0].decode()}{TOKEN_SEPARATOR}{after[1]}"
        page = list_revisions(
            self.state,
            tenant_id=tenant,
            namespace=namespace,
            resource_id=resource,
            page_token=token,
            limit=request["limit"],
            now_ms=now,
        )
        names = [name_of(view.metadata.identity) for view in page.revisions]
        return names, page.next_page_token != ""
