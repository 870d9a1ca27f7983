"""The Mooncake adapter's parts alone: codes, keys, options, answers, book, a Master that hangs."""

import json
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.mooncake.fake import FakeMooncake
from weightctl.adapters import mooncake
from weightctl.adapters.conformance.suite.material import context, fence
from weightctl.adapters.mooncake.client.codes import CODES, outcome_of_code, told
from weightctl.adapters.mooncake.keys import problem_of, query_of
from weightctl.adapters.mooncake.master.admin import Admin
from weightctl.adapters.mooncake.master.replicas import (
    COLD_KINDS,
    DISK,
    LOCAL_DISK,
    MEMORY,
    NOF,
    ReplicaKind,
    entries_of,
    has_cold,
    state_of,
    states_of,
)
from weightctl.adapters.mooncake.options import parse
from weightctl.adapters.mooncake.ownership.book import Book, Row
from weightctl.adapters.mooncake.ownership.strays import strays
from weightctl.controller.clock import SystemClock
from weightctl.controller.core.identity import (
    Identity,
    manifest_key,
    payload_group_id,
    payload_prefix,
)
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import ConfigError, FencedError, TransientError

GOOD = {"admin": "127.0.0.1:1", "master": "127.0.0.1:2"}


# --- codes ---


@pytest.mark.parametrize(
    "code,outcome",
    [
        (-704, "NoOp"),
        (-705, "Conflict"),
        (-706, "Busy"),
        (-703, "Busy"),
        (-714, "Busy"),
        (-200, "Retry"),
        (-600, "Permanent"),
        (-800, "Retry"),
        (-900, "Unknown"),
        (-901, "Unknown"),
        (-31337, "Unknown"),
    ],
)
def test_each_code_means_one_outcome_and_a_strange_one_is_unknown(code: int, outcome: str) -> None:
    assert type(outcome_of_code(code)).__name__ == outcome
    assert str(code) in told(code)


def test_every_code_of_the_table_has_an_outcome() -> None:
    assert all(code < 0 and outcome_of_code(code) for code in CODES)


# --- keys ---


@pytest.mark.parametrize(
    "key,size_bytes",
    [("", 1), ("a,b", 1), ("a\nb", 1), ("x" * 241, 1), ("é" * 121, 1), ("\udcff", 1), ("k", 0)],
)
def test_what_could_not_be_seen_again_is_refused(key: str, size_bytes: int) -> None:
    assert problem_of(key, size_bytes)


def test_queries_are_strictly_encoded() -> None:
    assert query_of(["weights/a~b/1", "c"]) == "weights/a~b/1,c"
    assert query_of(["a", "b,c", "d,"]) == "a", "the Master would answer for b, c and d"
    assert query_of(["a%2Fb", "c+d e&é"]) == "a%252Fb,c%2Bd%20e%26%C3%A9"


# --- options ---


@pytest.mark.parametrize(
    "kind,changes,told_of",
    [
        ("mooncake-memory", {"admin": "nowhere"}, "host:port"),
        ("mooncake-memory", {"master": "http://x"}, "etcd://"),
        ("mooncake-memory", {"capacity_bytes": 5}, "what the Master says"),
        ("mooncake-local-disk", {}, "does not tell how large"),
        ("mooncake-memory", {"cluster": "a b"}, "plain word"),
        ("mooncake-memory", {"lease_ttl": 5}, "lease_ttl_s"),
        ("mooncake-memory", {"force_leased": True}, "MissingCapability: .* another object"),
        ("mooncake-memory", {"force_leased": "yes"}, "neither true nor false"),
        ("mooncake-memory", {"master": "h:99999"}, "99999 is no port, which is 1 to 65535"),
        ("mooncake-memory", {"master": "h:0"}, "0 is no port"),
        ("mooncake-memory", {"admin": "h:9003,h:65536"}, "65536 is no port"),
        ("mooncake-memory", {"deadline_s": 0.0004}, r"0.0004 is less than 0\.1"),
        ("mooncake-memory", {"transfer_s": 0.001}, "0.001 is less than 1"),
        ("mooncake-memory", {"segments": ","}, "it names no segment"),
        ("mooncake-memory", {"parking_bytes": 1}, "1 is less than 16777216"),
    ],
)
def test_options_that_cannot_be_used_are_refused_with_the_reason(
    kind: str, changes: dict[str, object], told_of: str
) -> None:
    with pytest.raises(ConfigError, match=told_of):
        parse("tier", kind, {**GOOD, **changes})


def test_a_master_behind_etcd_has_no_port_above_the_last_one() -> None:
    with pytest.raises(ConfigError, match="70000 is no port"):
        parse("tier", "mooncake-memory", {"master": "etcd://a:2379;b:70000"})


def test_tiers_with_equal_options_share_one_connection() -> None:
    memory = parse("memory", "mooncake-memory", GOOD)
    disk = parse("disk", "mooncake-local-disk", {**GOOD, "capacity_bytes": "1GiB"})
    assert memory.connection == disk.connection


def test_the_dfs_tier_is_a_declared_missing_capability(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="MissingCapability") as refused:
        mooncake.dfs("far", GOOD, context(tmp_path))
    assert refused.value.todo


def test_without_the_extra_a_tier_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "weightctl.adapters.mooncake.master.replicas", None)
    for name in ("connection", "tier"):
        monkeypatch.delitem(sys.modules, f"weightctl.adapters.mooncake.{name}", raising=False)
    with pytest.raises(ConfigError, match="MissingLibrary") as refused:
        mooncake.memory("fast", GOOD, context(tmp_path))
    assert "weightctl[mooncake]" in refused.value.todo


# --- answers ---

PLACE = {"size_": 5, "transport_endpoint_": "h:1", "buffer_address_": 7}
REPLICAS: dict[str, dict[str, object]] = {
    "values": PLACE,
    "local_disk_values": {"object_size": 5, "client_id": "1-2"},
    "disk_values": {"object_size": 5, "file_path": "/a"},
    "nof_values": PLACE,
}
LISTED = dict(zip((MEMORY, LOCAL_DISK, DISK, NOF), REPLICAS, strict=True))
NONE: dict[str, object] = {"ok": True, "error": None, **dict.fromkeys(REPLICAS)}
MISSING: dict[str, object] = NONE | {"ok": False, "error": "OBJECT_NOT_FOUND"}


def answered(entry: object) -> bytes:
    """An answer for the key `k`."""
    return json.dumps({"success": True, "data": {"k": entry}}).encode()


@pytest.mark.parametrize("kind", [MEMORY, LOCAL_DISK, DISK, NOF], ids=lambda kind: kind.kind)
def test_each_kind_of_replica_is_observed_and_counted(kind: ReplicaKind) -> None:
    field = LISTED[kind]
    entry = entries_of(answered(NONE | {field: [REPLICAS[field]]}))["k"]
    assert state_of(entry, kind, 5) is MemberState.COMPLETE
    assert state_of(entry, kind, 6) is MemberState.ABSENT
    others = {MEMORY, LOCAL_DISK, DISK, NOF} - {kind}
    assert {state_of(entry, other, 5) for other in others} == {MemberState.ABSENT}
    assert has_cold(entry, 5) is (kind in COLD_KINDS)


@pytest.mark.parametrize(
    "entry,state",
    [
        (None, MemberState.UNKNOWN),
        (MISSING, MemberState.ABSENT),
        (MISSING | {"error": "REPLICA_IS_NOT_READY"}, MemberState.PARTIAL),
        (MISSING | {"error": "SOMETHING_NEW"}, MemberState.UNKNOWN),
    ],
)
def test_what_is_not_an_answer_is_unknown(
    entry: dict[str, object] | None, state: MemberState
) -> None:
    entries = {} if entry is None else entries_of(answered(entry))
    assert state_of(entries.get("k"), MEMORY, 5) is state
    assert states_of(entries, ["k", "other"], MEMORY, [5, 5]) == bytes([state, MemberState.UNKNOWN])


@pytest.mark.parametrize(
    "entry",
    [
        {},
        None,
        [],
        NONE | {"ok": 1},
        NONE | {"values": PLACE},
        NONE | {"values": [1]},
        NONE | {"values": [{"size_": 5}]},
        NONE | {"values": [PLACE | {"size_": "5"}]},
        NONE | {"disk_values": [{"file_path": "/a"}]},
        *(
            {name: value for name, value in told.items() if name != field}
            for field in REPLICAS
            for told in (NONE, MISSING)
        ),
    ],
)
def test_an_answer_of_another_form_is_no_answer_for_any_key(entry: object) -> None:
    with pytest.raises(ValueError, match=r"Expected|missing"):
        entries_of(answered(entry))


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[" * 100_000, b'{"success":false,"data":{}}', answered({"ok": True})[:-1]],
)
def test_what_is_no_answer_at_all_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        entries_of(body)


# --- the Master ---


def test_a_master_that_hangs_costs_a_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        admin = Admin([f"127.0.0.1:{silent.getsockname()[1]}"], 0.2, SystemClock())
        with pytest.raises(TransientError, match="no answer that can be used"):
            admin.health()
        admin.close()


def test_the_master_that_serves_is_found_among_several(imitated: FakeMooncake) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        admin = Admin([f"127.0.0.1:{silent.getsockname()[1]}", imitated.admin], 0.2, SystemClock())
        assert admin.health().address == imitated.admin
        assert admin.query(admin.health(), ["k"])["k"].error == "OBJECT_NOT_FOUND"
        admin.close()


def test_no_connection_is_kept_after_all_were_closed(
    imitated: FakeMooncake,
) -> None:
    """A look that was given up ends, or begins, in its thread after its tier was left."""
    admin = Admin([imitated.admin], 60.0, SystemClock())
    with admin._connection(imitated.admin) as ends_late:
        ends_late.ask("GET", "/health", 1000)
        admin.close()
        assert ends_late.sock is not None
    assert ends_late.sock is None
    with admin._connection(imitated.admin) as begins_late:
        begins_late.connect()
    assert begins_late.sock is None
    admin.open()
    with admin._connection(imitated.admin) as kept:
        kept.connect()
    assert kept.sock is not None
    admin.close()
    assert kept.sock is None


# --- the book ---


def test_the_book_outlives_a_restart_and_fences_older_terms(tmp_path: Path) -> None:
    row = Row(key="k", group_id="g", size_bytes=5, sha256=bytes(32), token="t", owner="o")
    book = Book(tmp_path / "tiers" / "x.sqlite", read_only=False)
    book.open()
    book.put([row])
    book.set_epoch("e")
    book.admit(fence(term=5))
    book.close()
    again = Book(tmp_path / "tiers" / "x.sqlite", read_only=False)
    again.open()
    assert (again.rows(), again.epoch) == ([row], "e")
    with pytest.raises(FencedError):
        again.admit(fence(term=4))
    again.forget(["k"])
    assert again.get("k") is None
    again.close()


def test_a_term_that_another_process_has_served_refuses_an_older_one_at_once(
    tmp_path: Path,
) -> None:
    early = Book(tmp_path / "x.sqlite", read_only=False)
    early.open()
    early.admit(fence(term=1))
    late = Book(tmp_path / "x.sqlite", read_only=False)
    late.open()
    late.admit(fence(term=2))
    with pytest.raises(FencedError):
        early.admit(fence(term=1))
    late.admit(fence(term=2))
    early.close()
    late.close()


def test_objects_that_nobody_here_has_put_are_counted_until_they_are_put_or_forgotten(
    tmp_path: Path,
) -> None:
    put = Row(key="a", group_id="g", size_bytes=5, sha256=bytes(32), token="t", owner="o")
    book = Book(tmp_path / "x.sqlite", read_only=False)
    book.open()
    book.put([put, replace(put, key="b", owner=""), replace(put, key="c", owner="")])
    assert book.strange == 2
    book.close()
    again = Book(tmp_path / "x.sqlite", read_only=False)
    again.open()
    assert again.strange == 2
    again.put([replace(put, key="b")])
    again.forget(["c"])
    assert again.strange == 0
    again.close()


def test_two_keys_that_a_host_would_keep_in_one_file_are_told(tmp_path: Path) -> None:
    row = Row(key="a/b_c", group_id="g", size_bytes=5, sha256=bytes(32), token="t", owner="o")
    book = Book(tmp_path / "x.sqlite", read_only=False)
    book.open()
    book.put([row])
    assert book.shares_file("a_b/c") == "a/b_c"
    assert book.shares_file("a/b_c") == ""
    assert book.shares_file("other") == ""
    book.close()


def test_a_book_opened_for_asking_creates_nothing(tmp_path: Path) -> None:
    book = Book(tmp_path / "tiers" / "x.sqlite", read_only=True)
    book.open()
    with pytest.raises(TransientError):
        book.set_epoch("e")
    book.close()
    assert not (tmp_path / "tiers").exists()


def test_objects_with_managed_names_that_the_book_lacks_are_strays_of_their_group() -> None:
    mine = Identity(namespace="a b", resource_id="m/x", revision="v", weight_generation=7)
    theirs = replace(mine, tenant_id="other", revision="w")
    row = Row(
        key=payload_prefix(theirs) + "0",
        group_id=payload_group_id(theirs),
        size_bytes=1,
        sha256=bytes(32),
        token="",
        owner="",
    )
    beside, alone = payload_prefix(theirs) + "1", manifest_key(mine)
    strange = ["kv-0001", "weightctl-epoch/1", "weights/a/b/c/0/manifest", "weights/a/b/c/1/x"]
    unseen = payload_prefix(mine) + "a,b"
    assert strays([row.key, beside, alone, unseen, *strange], [row]) == {
        beside: payload_group_id(theirs),
        alone: payload_group_id(mine),
    }


def test_only_paths_that_take_no_lease_are_asked_and_each_is_counted(
    imitated: FakeMooncake,
) -> None:
    admin = Admin([imitated.admin], 1.0, SystemClock())
    health = admin.health()
    admin.query(health, ["k"])
    admin.query(health, ["k"])
    assert {path: n for path, n in admin.asked.items() if n} == {
        "/health": 1,
        "/batch_query_keys": 2,
    }
    with pytest.raises(KeyError):
        admin._get(imitated.admin, "/query_key?key=k", 100)
    admin.close()
