"""Targets: op-log payloads and entries, replay, and snapshot files."""

import json
from collections.abc import Sequence
from typing import Any

from tests.fuzz.rows import columns, spelled
from tests.fuzz.target import Fault, Target, same
from tests.support import weights
from weightctl.controller.core.identity import manifest_key, payload_group_id, text_bytes
from weightctl.controller.core.oplog import (
    EntryType,
    LeaseDelete,
    LeaseUpsert,
    MetadataDelete,
    MetadataUpsert,
    Payload,
    identity_of,
    key_of,
)
from weightctl.controller.core.records import Residency, Snapshot
from weightctl.controller.core.replay import Entry, Replay
from weightctl.controller.core.snapshot import export_snapshot, restore_snapshot, validate_snapshot
from weightctl.controller.core.state import WeightState
from weightctl.controller.errors import WeightError
from weightctl.controller.store import archive, codec
from weightctl.controller.store.codec import CodecError
from weightctl.controller.store.commit import EntryDraft, entry_checksum
from weightctl.controller.store.entries import operation_of
from weightctl.controller.store.loading import DamageError, StoredEntry, read_log_row
from weightctl.controller.store.oplog import _log_entry
from weightctl.controller.store.rows import ObjectRow

_TYPES = tuple(EntryType)


def _life() -> list[Payload]:
    """What the log of two revisions holds: imports, leases, an eviction, its end, deletes."""
    world = weights.World()
    other = weights.identity("step-200", 1, "tenant-a")
    world.begin()
    world.begin(other)
    world.at(200).commit()
    lease = world.acquire()
    world.at(210).renew(lease.lease_id, 500)
    world.release(lease.lease_id)
    world.at(300).start(2, Residency.COLD)
    world.at(310).progress(1)
    world.at(320).finish(Residency.COLD)
    world.at(400).delete(4)
    world.at(410).finish_delete(5)
    world.abort(1, other)
    return world.log


_LIFE = _life()


def _type_of(payload: Payload) -> int:
    kinds: dict[type, EntryType] = {
        MetadataUpsert: EntryType.METADATA_UPSERT,
        MetadataDelete: EntryType.METADATA_DELETE,
        LeaseUpsert: EntryType.LEASE_UPSERT,
        LeaseDelete: EntryType.LEASE_DELETE,
    }
    return kinds[type(payload)]


# --- payloads of entries: one byte for the type, then the bytes -----------------------------------


def _payload_seeds() -> list[bytes]:
    more = [
        *_LIFE,
        MetadataUpsert(metadata=weights.evicting(), operation=weights.running()),
        MetadataDelete(identity=weights.ID, metadata_generation=2),
    ]
    return [bytes([48 + _type_of(one) - 8]) + codec.encode(one) for one in more]


def _parse_payload(raw: bytes) -> Payload:
    return codec.decode(_TYPES[raw[0] % 4] if raw else 0, raw[1:])


def _check_payload(value: Payload, raw: bytes) -> None:
    written = codec.encode(value)
    again = codec.decode(_type_of(value), written)
    same(again, value, "payload read back")
    same(codec.encode(again), written, "payload written again")


# --- rows of the log ------------------------------------------------------------------------------


def _row(sequence: int, payload: Payload) -> list[Any]:
    draft = EntryDraft(
        _type_of(payload),
        text_bytes(identity_of(payload).tenant_id),
        key_of(payload),
        codec.encode(payload),
    )
    checksum = entry_checksum(sequence, 100, draft)
    return [sequence, 100, *draft[:4], checksum, operation_of(payload)]


def _mend_row(raw: bytes) -> bytes:
    row = columns(raw)
    if len(row) != 8:
        return raw
    try:
        row[6] = entry_checksum(row[0], row[1], EntryDraft(*row[2:6]))
        row[7] = operation_of(codec.decode(row[2], row[5]))
    except Exception:  # noqa: BLE001 - what cannot be mended is tried as it is
        pass
    return spelled(row)


def _parse_row(raw: bytes) -> StoredEntry:
    row = columns(raw)
    if len(row) != 8:
        raise DamageError(0, "not what the statement selects")
    shown = _log_entry(row)
    if (shown.value is None) == (not shown.problem):
        raise Fault("an entry is shown neither with its value nor with its problem")
    return read_log_row(row)


def _check_row(value: StoredEntry, raw: bytes) -> None:
    same(codec.decode(value.entry_type, codec.encode(value.payload)), value.payload, "payload")


# --- replay: one entry a line, [type, payload]; what is refused is left out -----------------------


def _line(payload: Payload) -> bytes:
    return b"[%d,%b]" % (_type_of(payload), codec.encode(payload))


def _replay(raw: bytes) -> Replay:
    replay = Replay(WeightState())
    for line in raw.split(b"\n"):
        payload = _decoded(line)
        if payload is not None:
            _apply(replay, payload)
    return replay


def _decoded(line: bytes) -> Payload | None:
    try:
        number, row = json.loads(line)
        return codec.decode(number, json.dumps(row).encode())
    except (ValueError, TypeError, RecursionError):
        return None


def _apply(replay: Replay, payload: Payload) -> None:
    entry = Entry(
        sequence=replay.expected_sequence,
        tenant_id=identity_of(payload).tenant_id,
        key=key_of(payload),
        payload=payload,
    )
    before = _held(replay.state)
    try:
        replay.apply(entry)
    except WeightError:
        same(_held(replay.state), before, "state after a refused entry")
        same(replay.expected_sequence, entry.sequence, "sequence after a refused entry")


def _held(state: WeightState) -> tuple[object, ...]:
    tables = (dict(state.metadata), dict(state.leases), dict(state.operations), dict(state.groups))
    return (*tables, state.next_lease_id, state.next_operation_id)


def _check_replay(value: Replay, raw: bytes) -> None:
    snapshot = export_snapshot(value.state)
    validate_snapshot(snapshot)
    same(export_snapshot(restore_snapshot(snapshot)), snapshot, "snapshot restored and taken again")


def _mend_lines(raw: bytes) -> bytes:
    return b"\n".join(map(_mend_line, raw.split(b"\n")))


def _mend_line(line: bytes) -> bytes:
    try:
        number, row = json.loads(line)
        if number == 8:
            _name(row[1])
    except (ValueError, TypeError, LookupError, RecursionError):
        return line
    return json.dumps([number, row], separators=(",", ":")).encode()


def _name(metadata: Any) -> None:
    """Give a metadata row the names that follow from its identity."""
    try:
        identity = codec.identity_from(metadata[0])
    except CodecError:
        return
    if isinstance(metadata[1], list) and len(metadata[1]) == 6:
        metadata[1][2] = payload_group_id(identity)
        metadata[1][0] = manifest_key(identity) if metadata[1][0] else ""


def _replay_seeds() -> list[bytes]:
    lines = list(map(_line, _LIFE))
    return [b"\n".join(lines[:count]) for count in range(1, len(lines) + 1)]


def _imports(n: int) -> bytes:
    drafts = [weights.draft(weights.identity(f"r{at}")) for at in range(n)]
    return b"\n".join(_line(MetadataUpsert(metadata=draft)) for draft in drafts)


# --- snapshot files -------------------------------------------------------------------------------


def _archive_seeds() -> list[bytes]:
    found = [archive.encode_archive(archive.Archive(weights=Snapshot()))]
    for count in (3, 7, 9, len(_LIFE)):
        replay = Replay(WeightState())
        for payload in _LIFE[:count]:
            _apply(replay, payload)
        group = payload_group_id(weights.ID)
        objects = tuple(
            ("default", group, ObjectRow(b"weights/a/%d" % at, at, 8, bytes(32), 1))
            for at in range(2)
        )
        found.append(
            archive.encode_archive(
                archive.Archive(
                    weights=export_snapshot(replay.state),
                    objects=objects,
                    holder="store-1",
                    sequence=count,
                    created_ms=9,
                )
            )
        )
    return found


def _mend_archive(raw: bytes) -> bytes:
    try:
        document = json.loads(raw)
        for section in document["sections"].values():
            for metadata in section["body"].get("metadata", ()):
                _name(metadata)
            section["sha256"] = archive._digest(section["body"])
        return json.dumps(document, separators=(",", ":")).encode()
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return raw


def _check_archive(value: archive.Archive, raw: bytes) -> None:
    same(archive.decode_archive(archive.encode_archive(value)), value, "snapshot file read back")
    state = restore_snapshot(value.weights)
    again = export_snapshot(state)
    for name in ("metadata", "leases", "operations"):
        same(
            set(getattr(again, name)), set(getattr(value.weights, name)), f"{name} after a restore"
        )
    if (again.next_lease_id, again.next_operation_id) != (
        value.weights.next_lease_id,
        value.weights.next_operation_id,
    ):
        raise Fault("the counters are not those of the file")


def _objects(n: int) -> bytes:
    rows = tuple(("default", "g", ObjectRow(b"k%d" % at, 1, 1, bytes(32), 0)) for at in range(n))
    return archive.encode_archive(archive.Archive(weights=Snapshot(), objects=rows))


def _records(n: int) -> bytes:
    records = tuple(weights.draft(weights.identity(f"r{at}")) for at in range(n))
    return archive.encode_archive(archive.Archive(weights=Snapshot(metadata=records)))


def _leases(n: int) -> Sequence[Payload]:
    return [LeaseUpsert(lease=weights.lease(at)) for at in range(1, n + 1)]


_WORDS = (b"completed", b"weight:", b"weights/", b"/manifest", b"default", b"a" * 64, b"null",
          b"18446744073709551615", b"18446744073709551614", b"objects")  # fmt: skip

TARGETS = (
    Target(
        name="oplog-payload",
        parse=_parse_payload,
        check=_check_payload,
        refusals=(CodecError,),
        seeds=_payload_seeds,
        words=_WORDS,
        shapes={"text": lambda n: b'2[1,[1,["' + b"a" * n + b'","n","r","v",1],"h",1,1]]'},
    ),
    Target(
        name="oplog-row",
        parse=_parse_row,
        check=_check_row,
        mend=_mend_row,
        refusals=(DamageError,),
        seeds=lambda: [spelled(_row(at, one)) for at, one in enumerate(_LIFE, 1)],
        form="json",
        words=_WORDS,
    ),
    Target(
        name="replay",
        parse=_replay,
        check=_check_replay,
        mend=_mend_lines,
        refusals=(),
        seeds=_replay_seeds,
        form="lines",
        words=_WORDS,
        bytes_max=8192,
        changes=600,
    ),
    Target(
        name="snapshot-file",
        parse=archive.decode_archive,
        check=_check_archive,
        mend=_mend_archive,
        bytes_max=4096,
        refusals=(WeightError,),
        seeds=_archive_seeds,
        form="json",
        words=_WORDS,
        shapes={"objects": _objects, "records": _records},
        changes=1500,
    ),
)
