"""Targets: the rows of the state file beside the op-log, and the small files around it."""

import json
from typing import Any

import xxhash

from tests.fuzz import scratch
from tests.fuzz.rows import Connection, columns, spelled
from tests.fuzz.target import Fault, Target, same
from tests.support import weights
from weightctl.controller.core.damage import DamagedReplica
from weightctl.controller.core.observation import Members
from weightctl.controller.errors import StateDirectoryError
from weightctl.controller.store import damage, evidence, lock, rows, watermark
from weightctl.controller.store.database import BAD_FILE, Header, read_header

_GROUP = "weight:" + "0" * 64


def _table(raw: bytes) -> list[list[Any]]:
    """Rows of one JSON array each."""
    return [row for line in raw.split(b"\n") if (row := columns(line))]


# --- header ---------------------------------------------------------------------------------------


def _header_seeds() -> list[bytes]:
    fresh = Header(store_id="store-1", term=1, created_ms=5)
    used = Header(
        store_id="0f" * 16,
        term=3,
        created_ms=5,
        folded_sequence=9,
        snapshot_rows=2,
        snapshot_sum=12345,
        next_lease_id=2**64 - 1,
        next_operation_id=7,
    )
    return [spelled(one.row()) for one in (fresh, used)]


def _parse_header(raw: bytes) -> Header:
    row = columns(raw)
    connection: Any = Connection([tuple(row)] if row else [])
    return read_header(connection, scratch.folder())


def _mend_header(raw: bytes) -> bytes:
    row = columns(raw)
    if len(row) != 9:
        return raw
    try:
        values = (*row[:6], int(row[6]), int(row[7]))
        row[8] = Header(**dict(zip(Header.__dataclass_fields__, values, strict=True))).checksum()
    except Exception:  # noqa: BLE001 - what cannot be mended is tried as it is
        return raw
    return spelled(row)


def _check_header(value: Header, raw: bytes) -> None:
    same(_parse_header(spelled(value.row())), value, "header read back")


# --- evidence -------------------------------------------------------------------------------------


def _evidence_seeds() -> list[bytes]:
    row = evidence.EvidenceRow(
        member_key="weights/a",
        dropped_tier="memory",
        dropped_instance="i-1",
        evidence_tier="local_disk",
        evidence_instance="i-2",
        evidence_sha256=bytes(32),
        evidence_epoch="e",
        verified_at_ms=1,
        operation_id=2,
        at_ms=3,
    )
    return [json.dumps([evidence._values(row)] * count).encode() for count in (0, 1, 2)]


def _parse_evidence(raw: bytes) -> tuple[evidence.EvidenceRow, ...]:
    connection: Any = Connection([(raw, xxhash.xxh32_intdigest(raw))])
    return evidence.read_evidence(connection, weights.ID)


def _check_evidence(value: tuple[evidence.EvidenceRow, ...], raw: bytes) -> None:
    written = json.dumps([evidence._values(row) for row in value]).encode()
    same(_parse_evidence(written), value, "evidence read back")


# --- verdicts on damaged replicas -----------------------------------------------------------------


def _damage_seeds() -> list[bytes]:
    verdicts = [
        DamagedReplica(
            member_key=key,
            tier="nof",
            instance_id="i",
            epoch="e",
            found_sha256=found,
            at_ms=1,
        )
        for key, found in (("weights/a", bytes(32)), ("é", b""))
    ]
    lines = [spelled(damage._values(_GROUP, one)) for one in verdicts]
    return [lines[0], b"\n".join(lines)]


def _parse_damage(raw: bytes) -> damage.Damage:
    connection: Any = Connection([tuple(row) for row in _table(raw) if len(row) == 8])
    connection.rows = connection.rows or [("", "", "", "", "", b"", 0, -1)]
    return damage.read_damage(connection)


def _mend_damage(raw: bytes) -> bytes:
    table = [row for row in _table(raw) if len(row) == 8]
    for row in table:
        row[7] = damage._checksum(row[:7])
    return b"\n".join(map(spelled, table))


def _check_damage(value: damage.Damage, raw: bytes) -> None:
    written = [spelled(damage._values(place[0], row)) for place, row in value.items()]
    same(_parse_damage(b"\n".join(written)), value, "verdicts read back")


# --- members of a group ---------------------------------------------------------------------------


def _members_seeds() -> list[bytes]:
    found = [rows.ObjectRow(b"weights/%d" % at, at, 8 * at, bytes(32), at) for at in range(2)]
    return [b"\n".join(spelled(one) for one in found[:count]) for count in (1, 2)]


def _parse_members(raw: bytes) -> Members:
    table = [tuple(row) for row in _table(raw) if len(row) == 5]
    connection: Any = Connection(table)
    group = rows.GroupRow(number=1)
    try:
        members, _ = rows._read_group(connection, group, _GROUP)
    except BAD_FILE as error:
        raise rows.damaged_group(_GROUP) from error
    return members


def _check_members(value: Members, raw: bytes) -> None:
    count = len(value)
    sizes = (len(value.sizes_bytes), len(value.sha256), len(value.data_types), len(value.hard_pin))
    same(sizes, (count, 32 * count, count, count), "lengths of the columns")


# --- small files ----------------------------------------------------------------------------------


def _parse_watermark(raw: bytes) -> int:
    scratch.written(watermark.NAME, raw)
    return watermark.acknowledged(scratch.folder(), "0f")


def _line(sequence: int, owner: bytes = b"0f") -> bytes:
    head = b"%b %020d " % (owner, sequence)
    return b"%b%08x\n" % (head, xxhash.xxh32_intdigest(head))


def _mend_watermark(raw: bytes) -> bytes:
    digits = bytes(48 + one % 10 for one in raw[:20])
    return _line(int(digits or b"0"))


def _check_watermark(value: int, raw: bytes) -> None:
    if not 0 <= value < 10**20:
        raise Fault(f"sequence {value}")


def _parse_lock(raw: bytes) -> str:
    text = raw[: lock._TEXT_BYTES_MAX].decode("utf-8", "replace").strip()
    return lock._told(text) + str(lock._named_pid(text))


def _lock_seeds() -> list[bytes]:
    texts: tuple[object, ...] = (
        {"pid": 7, "host": "h", "startedMs": 1_700_000_000_000},
        {"pid": "7", "host": None, "startedMs": "1"},
        {"pid": 1e400, "startedMs": 1e400, "host": "h"},
        {"pid": -(10**30), "host": "h", "startedMs": 10**30},
        [],
    )
    return [json.dumps(text).encode() for text in texts]


TARGETS = (
    Target(
        name="store-header",
        parse=_parse_header,
        check=_check_header,
        mend=_mend_header,
        refusals=(StateDirectoryError, *BAD_FILE),
        seeds=_header_seeds,
        form="json",
    ),
    Target(
        name="store-evidence",
        parse=_parse_evidence,
        check=_check_evidence,
        refusals=(StateDirectoryError,),
        seeds=_evidence_seeds,
        form="json",
    ),
    Target(
        name="store-damage",
        parse=_parse_damage,
        check=_check_damage,
        mend=_mend_damage,
        refusals=(StateDirectoryError,),
        seeds=_damage_seeds,
        form="lines",
    ),
    Target(
        name="store-members",
        parse=_parse_members,
        check=_check_members,
        refusals=(StateDirectoryError,),
        seeds=_members_seeds,
        form="lines",
    ),
    Target(
        name="watermark",
        parse=_parse_watermark,
        check=_check_watermark,
        mend=_mend_watermark,
        refusals=(),
        seeds=lambda: [_line(0), _line(9), _line(10**20 - 1), _line(1, b"ff")],
    ),
    Target(
        name="lock-text",
        parse=_parse_lock,
        refusals=(),
        seeds=_lock_seeds,
        form="json",
        words=(b"pid", b"startedMs", b"host"),
    ),
)
