"""The verbs that act: one registry for the command line and the control socket.  Layer: api.

A verb takes an open `App`, its checked parameters and an `emit` for progress, and gives a document.
An operation is durable before anything is waited for; giving up waiting does not end it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from weightctl.controller.api import adoption, requests, supposing, surveys, transfer, views
from weightctl.controller.api.explain import unattended
from weightctl.controller.api.supposing import Wish
from weightctl.controller.api.waiting import EndlessError, wait_for
from weightctl.controller.core.identity import parse_identity
from weightctl.controller.core.records import Availability
from weightctl.controller.core.refusals import instant, invalid
from weightctl.controller.errors import ErrorCode, WeightError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from weightctl.controller.api import documents as doc
    from weightctl.controller.api.app import App
    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.records import RevisionMetadata

    Emit = Callable[[Mapping[str, Any]], None]
    Handler = Callable[[App, Any, Emit], Awaitable[Any]]


async def handle(app: App, verb: str, params: Mapping[str, Any], emit: Emit) -> doc.Document:
    """Carry out one verb.  Raises WeightctlError; INVALID_ARGUMENT for an unknown verb or field."""
    asked = requests.check(verb, params)
    if verb in _SURVEYS or getattr(asked, "dry_run", False):
        return await surveys.survey(app.planning(), verb, params)
    try:
        return cast("doc.Document", await _HANDLERS[verb](app, asked, emit))
    except WeightError as refusal:
        if refusal.code is not ErrorCode.BUSY or not isinstance(asked, requests.One):
            raise
        raise await app.planning().with_loss(asked.identity, refusal) from None


async def handle_alone(app: App, verb: str, params: Mapping[str, Any], emit: Emit) -> doc.Document:
    """`handle` for the only process that holds the state: nobody else works on what is recorded."""
    try:
        return await handle(app, verb, params, emit)
    except WeightError as refusal:
        told = isinstance(refusal, EndlessError) or "identity" not in params
        if told or refusal.code not in {ErrorCode.BUSY, ErrorCode.NOT_READY}:
            raise
        record = await _record(app, parse_identity(params["identity"]))
        raise unattended(refusal, record) from None


# --- changes of a revision ------------------------------------------------------------------------


async def evict(app: App, asked: requests.Change, emit: Emit) -> doc.Revision:
    """Start EVICTING."""
    return await _residency(app, "evict", asked, emit)


async def rehydrate(app: App, asked: requests.Change, emit: Emit) -> doc.Revision:
    """Start REHYDRATING."""
    return await _residency(app, "rehydrate", asked, emit)


async def _residency(app: App, verb: str, asked: requests.Change, emit: Emit) -> doc.Revision:
    planning = app.planning()
    subject = await planning.records.subject(asked.identity)
    record = subject.record
    members = await planning.members(record)
    await planning.check_whole(
        subject, Wish(verb=verb, expected_generation=asked.expected_generation)
    )
    started = await app.store.start_residency_operation(
        identity=asked.identity,
        expected_metadata_generation=asked.expected_generation or record.metadata_generation,
        target_residency=supposing.TARGETS[verb],
        member_count=len(members),
    )
    return await _follow(app, verb, asked, emit, operation_id=started.operation_id)


async def repair(app: App, asked: requests.Repair, emit: Emit) -> doc.Revision:
    """Start REPAIRING; whether a READY revision is short of copies is observed first.

    Raises LostError, as do the others that start an operation, for one that could never end.
    """
    planning = app.planning()
    subject = await planning.records.subject(asked.identity)
    wish = Wish(
        verb="repair", expected_generation=asked.expected_generation, target=asked.residency()
    )
    record = subject.record
    members = await planning.members(record)
    await planning.check_whole(subject, wish)
    started = await app.store.start_repair(
        identity=asked.identity,
        expected_metadata_generation=asked.expected_generation or record.metadata_generation,
        target_residency=supposing.repair_target(record, wish.target),
        member_count=len(members),
        copies_short=await planning.copies_short(subject, wish),
    )
    return await _follow(app, "repair", asked, emit, operation_id=started.operation_id)


async def delete(app: App, asked: requests.Change, emit: Emit) -> doc.Revision:
    """Start DELETING; an import that is not committed is aborted, which ends the same way."""
    record = await _record(app, asked.identity)
    if record.availability is Availability.DELETED:
        emit({"note": f"{asked.identity} is deleted already"})
    importing = record.availability is Availability.IMPORTING
    remove = app.store.abort_import if importing else app.store.delete_revision
    await remove(
        identity=asked.identity,
        expected_metadata_generation=asked.expected_generation or record.metadata_generation,
    )
    return await _follow(app, "delete", asked, emit, operation_id=0)


async def _follow(
    app: App, verb: str, asked: requests.Change, emit: Emit, *, operation_id: int
) -> doc.Revision:
    """Wake the loop and, where asked, wait until what was started has been observed."""
    if app.controller is not None:
        app.controller.wake(asked.identity)
    if asked.wait:
        await wait_for(
            app,
            verb,
            asked.identity,
            operation_id=operation_id,
            timeout_s=asked.timeout_s,
            emit=emit,
        )
    elif app.controller is None:
        emit({"note": "recorded; `weightctl run`, or the same verb with --wait, carries it out"})
    view = await app.store.get(identity=asked.identity)
    return views.revision(view, app.store.operation(identity=asked.identity))


async def load(app: App, asked: requests.Load, emit: Emit) -> doc.Load:
    """Read under a lease.  Raises LostError for NOT_READY where it is a loss: nothing passes."""
    try:
        return await transfer.load(app, asked, emit)
    except WeightError as refusal:
        if refusal.code is ErrorCode.NOT_READY:
            await app.planning().check_readable("load", asked.identity)
        raise


async def health(app: App, _: requests.Nothing, __: Emit) -> doc.Health:
    """How the running loop is doing."""
    return views.health(await app.loop().ask_health())


# --- leases, snapshots ----------------------------------------------------------------------------


async def lease_acquire(app: App, asked: requests.Acquire, emit: Emit) -> doc.Lease:
    """Claim a revision; a holder who has a lease on it gets that one as it is."""
    record = await _record(app, asked.identity)
    held = {lease.lease_id for lease in app.store.leases(identity=asked.identity)}
    taken = await app.store.acquire_lease(
        identity=asked.identity,
        expected_metadata_generation=asked.expected_generation or record.metadata_generation,
        holder=asked.holder,
        ttl_ms=asked.ttl_ms or app.lease_ttl_ms,
    )
    if taken.lease_id in held:
        emit(
            {
                "note": f"{taken.holder} holds lease {taken.lease_id} already, until"
                f" {instant(taken.expires_at_ms)}; `weightctl lease renew` lets it live longer"
            }
        )
    return views.lease(taken, live=True)


async def lease_renew(app: App, asked: requests.Renew, _: Emit) -> doc.Lease:
    """Let a lease live longer."""
    renewed = await app.store.renew_lease(
        lease_id=asked.lease_id,
        tenant_id=asked.tenant_id,
        ttl_ms=asked.ttl_ms or app.lease_ttl_ms,
    )
    return views.lease(renewed, live=True)


async def lease_release(app: App, asked: requests.Release, emit: Emit) -> doc.LeaseList:
    """Give a lease back; lists what was released, nothing where there was no such lease."""
    held = app.store.lease(lease_id=asked.lease_id)
    await app.store.release_lease(lease_id=asked.lease_id, tenant_id=asked.tenant_id)
    released = [] if held is None or held.identity.tenant_id != asked.tenant_id else [held]
    if not released:
        emit({"note": f"no such lease: nothing to release ({asked.lease_id})"})
    items = [views.lease(lease, live=False) for lease in released]
    return {"apiVersion": views.API_VERSION, "kind": "LeaseList", "items": items}


async def snapshot_save(app: App, asked: requests.File, _: Emit) -> doc.SnapshotReport:
    """Write the weight state to a file."""
    archive = await app.store.save_archive(asked.file)
    return await transfer.snapshot("saved", asked.file, archive.weights)


async def snapshot_restore(app: App, asked: requests.File, _: Emit) -> doc.SnapshotReport:
    """Replace the weight state by a file's; refused beside a running loop."""
    if app.controller is not None:
        raise invalid("snapshot restore", "the loop is running", "stop `weightctl run` first")
    archive = await app.store.restore_archive(asked.file)
    return await transfer.snapshot("restored", asked.file, archive.weights)


async def _record(app: App, identity: Identity) -> RevisionMetadata:
    return (await app.store.get(identity=identity)).metadata


_SURVEYS = frozenset({"plan", "explain", "tensors", "tiers", "orphans"})

_HANDLERS: dict[str, Handler] = {
    "evict": evict,
    "rehydrate": rehydrate,
    "repair": repair,
    "delete": delete,
    "health": health,
    "import": transfer.import_,
    "adopt": adoption.adopt,
    "load": load,
    "lease acquire": lease_acquire,
    "lease renew": lease_renew,
    "lease release": lease_release,
    "snapshot save": snapshot_save,
    "snapshot restore": snapshot_restore,
}
