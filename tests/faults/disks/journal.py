"""The life of a state directory, and what must be true of it after any fault.

The life walks every kind of durable change with short limits, so that folding the log, checkpoints
and a write-ahead log that begins anew all happen in it, and a second process follows the first.
The rule: what was acknowledged is there, the step that was under way is there wholly or not at all,
and the term, which fences the tiers, never goes back.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

from tests.support.store_child import REVISIONS, evidence, scenario
from tests.support.stores import begin, commit, manifest, opened, payload
from tests.support.virtual_time import VirtualClock
from tests.support.weights import identity
from weightctl.controller.core.identity import payload_group_id
from weightctl.controller.core.records import Snapshot
from weightctl.controller.core.snapshot import export_snapshot
from weightctl.controller.store import commit as commits
from weightctl.controller.store import database, journal, opening
from weightctl.controller.store.database import DATABASE_NAME, Header
from weightctl.controller.store.evidence import EvidenceRow, read_evidence
from weightctl.controller.store.oplog import verify_log
from weightctl.controller.store.rows import read_members
from weightctl.controller.store.store import WeightMetadataStore

STATE = "state"
LATER = identity("later", 1)

Picture = tuple[Snapshot, tuple[tuple[str, ...], ...], tuple[EvidenceRow, ...], dict[str, str]]
Note = Callable[[object], Awaitable[None]]


@contextmanager
def short_limits() -> Iterator[None]:
    """Fold every few entries, and write back after a few pages."""
    with ExitStack() as stack:
        for module, name, value in (
            (journal, "LOG_ENTRIES_MAX", 6),
            (commits, "FOLD_ENTRIES", 4),
            (database, "WAL_PAGES_MAX", 20),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        yield


async def live(folder: Path, note: Note) -> list[Picture]:
    """Two processes after each other; notes (`term`, number) and (`step`, number).

    Gives what is to be seen after each step; the first picture is that of an empty store.
    """
    pictures: list[Picture] = []
    clock = VirtualClock(wall_ms=1000)

    async def settled(store: WeightMetadataStore) -> None:
        await note(("step", len(pictures)))
        pictures.append(await picture(store))

    async with opened(folder / STATE, clock) as store:
        await note(("term", store.term))
        await settled(store)
        async for _ in scenario(store, clock):
            await settled(store)
    async with opened(folder / STATE, clock) as store:
        await note(("term", store.term))
        await begin(store, LATER)
        await settled(store)
        await store.directory.register(LATER, [payload(LATER), manifest(LATER)])
        await settled(store)
        await commit(store, LATER)
        await settled(store)
        await store.evidence.record(LATER, [evidence(1)])
        await settled(store)
    return pictures


async def picture(store: WeightMetadataStore) -> Picture:
    """Everything durable, without the counters, which may skip ids."""
    groups = [await store.directory.members(payload_group_id(of)) for of in (*REVISIONS, LATER)]
    return (
        _without_counters(await store.export_snapshot()),
        tuple(tuple(group.keys) for group in groups),
        (*await store.evidence.rows(REVISIONS[0]), *await store.evidence.rows(LATER)),
        {"memory": store.tier_epochs.get("memory")},
    )


def _without_counters(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, next_lease_id=1, next_operation_id=1)


def judge(pictures: Sequence[Picture], folder: Path, facts: Sequence[object]) -> None:
    """Open the directory for writing, as a restart does, and compare."""
    known: dict[str, int] = {}
    for fact in facts:
        assert isinstance(fact, tuple)
        known[fact[0]] = fact[1]
    state = folder / STATE
    state.mkdir(exist_ok=True)
    path = state / DATABASE_NAME
    connection = opening._open_writer(path)
    try:
        loaded = opening._load(connection, path, Header(store_id="ab" * 16, term=0, created_ms=1))
        files = opening._open_files(path, loaded)
        files.watermark.close()
        header = opening._next_term(connection, path, loaded.header, 0)
        assert header.term > known.get("term", 0), "the term went back"
        groups = [
            read_members(connection, of.tenant_id, payload_group_id(of))
            for of in (*REVISIONS, LATER)
        ]
        found = (
            _without_counters(export_snapshot(loaded.state)),
            tuple(tuple(group.keys) for group in groups),
            (*read_evidence(connection, REVISIONS[0]), *read_evidence(connection, LATER)),
            {"memory": loaded.tier_epochs.get("memory", "")},
        )
    finally:
        connection.close()
    step = known.get("step", 0)
    assert found in pictures[step : step + 2], f"step {step} was acknowledged"
    report = verify_log(state)
    assert report.ok, report.problem


def judge_of(pictures: Sequence[Picture]) -> Callable[[Path, Sequence[object]], None]:
    """`judge` for one life."""
    return partial(judge, pictures)
