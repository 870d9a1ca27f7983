"""Drives the real store on real files: every request goes through its journal.

The store lives in a task of its own loop, because it is opened and left by one task; requests run
in between. An audit is a restart: closed, read from outside, verified, opened again.
"""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from tests.model.decisions import Answer, Row
from tests.model.pure_driver import arguments_of
from tests.model.translate import (
    name_of,
    plain_lease,
    plain_operation,
    plain_record,
    plain_view,
)
from tests.support.stores import opened
from tests.support.virtual_time import VirtualClock
from weightctl.controller.core.identity import TOKEN_SEPARATOR
from weightctl.controller.core.records import (
    ResidencyOperation,
    RevisionLease,
    RevisionMetadata,
    RevisionPage,
    RevisionView,
    Snapshot,
)
from weightctl.controller.core.snapshot import export_snapshot
from weightctl.controller.errors import WeightError
from weightctl.controller.store.oplog import verify_log
from weightctl.controller.store.reading import read_state
from weightctl.controller.store.store import WeightMetadataStore

METHODS = {
    "begin": "begin_import",
    "commit": "commit_import",
    "abort": "abort_import",
    "delete": "delete_revision",
    "finish_delete": "finish_delete",
    "observe": "publish_observation",
    "acquire": "acquire_lease",
    "renew": "renew_lease",
    "release": "release_lease",
    "expire": "expire_leases",
    "start": "start_residency_operation",
    "repair": "start_repair",
    "progress": "update_progress",
    "finish": "finish_operation",
    "get": "get",
    "query": "query_operation",
    "list": "list_revisions",
}
IDS = {
    "renew": "lease_id",
    "release": "lease_id",
    "progress": "operation_id",
    "finish": "operation_id",
    "query": "operation_id",
}

Result = TypeVar("Result")


class StoreDriver:
    """A store in one folder that every run of the machine replaces by its own start."""

    def __init__(self, folder: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self.folder = folder
        self.runner = asyncio.Runner(loop_factory=new_loop)
        self.clock = VirtualClock()
        self.restarts = 0
        self.open()

    def open(self) -> None:
        started = self._run(self._start())
        self.store, self._closing, self._host = started

    async def _start(
        self,
    ) -> tuple[WeightMetadataStore, asyncio.Event, "asyncio.Task[None]"]:
        closing = asyncio.Event()
        ready: asyncio.Future[WeightMetadataStore] = asyncio.get_running_loop().create_future()

        async def host() -> None:
            async with opened(self.folder, self.clock) as store:
                ready.set_result(store)
                await closing.wait()

        task = asyncio.create_task(host())
        return await ready, closing, task

    def close(self) -> None:
        async def end() -> None:
            self._closing.set()
            await self._host

        self._run(end())

    def begin(self, snapshot: Snapshot) -> "StoreDriver":
        """Start from a snapshot."""
        self._run(self.store.restore_snapshot(snapshot))
        assert self.snapshot() == snapshot
        return self

    def _run(self, call: Coroutine[Any, Any, Result]) -> Result:
        return self.runner.run(call)

    # --- the machine's driver ---------------------------------------------------------------------

    def ask(self, request: Row, now: int) -> Answer:
        self.clock._wall_ms = now
        call = request["call"]
        arguments = self._page(request) if call == "list" else arguments_of(request)
        if call in IDS:
            arguments[IDS[call]] = arguments.pop("id")
        if call == "finish":
            arguments["observed_residency"] = arguments.pop("residency")
        try:
            return "ok", plain(self._run(getattr(self.store, METHODS[call])(**arguments)))
        except WeightError as error:
            return "error", error.code.name

    @staticmethod
    def _page(request: Row) -> Row:
        tenant, namespace, resource = request["resource"]
        after = request["after"]
        token = "" if after is None else f"{after[0].decode()}{TOKEN_SEPARATOR}{after[1]}"
        return {
            "tenant_id": tenant,
            "namespace": namespace,
            "resource_id": resource,
            "page_token": token,
            "limit": request["limit"],
        }

    def snapshot(self) -> Snapshot:
        return export_snapshot(self.store._engine.state)

    def audit(self) -> None:
        """After a restart everything is as it was, but for ids that were burnt and not used."""
        before = self.snapshot()
        with read_state(self.folder) as stored:  # beside the open store
            assert without_counters(export_snapshot(stored.state)) == without_counters(before)
        self.close()
        report = verify_log(self.folder)
        assert report.ok, report.problem
        self.open()
        after = self.snapshot()
        assert without_counters(after) == without_counters(before)
        assert after.next_lease_id <= before.next_lease_id
        assert after.next_operation_id <= before.next_operation_id
        self.store._engine.state.next_lease_id = before.next_lease_id
        self.store._engine.state.next_operation_id = before.next_operation_id
        self.restarts += 1


def without_counters(snapshot: Snapshot) -> tuple[object, ...]:
    return snapshot.metadata, snapshot.leases, snapshot.operations


def plain(answer: object) -> Any:
    match answer:
        case RevisionMetadata():
            return plain_record(answer)
        case RevisionLease():
            return plain_lease(answer)
        case ResidencyOperation():
            return plain_operation(answer)
        case RevisionView():
            return plain_view(answer)
        case tuple():
            return [lease.lease_id for lease in answer]
        case None:
            return None
        case RevisionPage():
            names = [name_of(view.metadata.identity) for view in answer.revisions]
            return names, answer.next_page_token != ""
        case _:
            raise AssertionError(answer)
