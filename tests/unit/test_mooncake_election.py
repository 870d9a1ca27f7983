"""Finding the leading Master through etcd, over an imitated one: followed, or refused clearly."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from tests.support.mooncake.fake import FakeMooncake
from weightctl.adapters.mooncake.master.admin import Admin
from weightctl.adapters.mooncake.master.election import Elected, admin_of
from weightctl.adapters.mooncake.options import ConnectionOptions, parse
from weightctl.controller.clock import SystemClock
from weightctl.controller.errors import ConfigError, TransientError

VIEW = "mooncake-store/{}/master_view"


class FakeEtcd:
    """The HTTP side of etcd, as far as it is asked."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.asked: list[dict[str, str]] = []
        self.status = 200
        etcd = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                body = etcd._answer(self.path, asked)
                self.send_response(etcd.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def _answer(self, path: str, asked: dict[str, str]) -> bytes:
        assert path == "/v3/kv/range"
        self.asked.append(asked)
        start = b64decode(asked["key"]).decode()
        end = b64decode(asked.get("range_end", "")).decode() or start + "\0"
        pairs = [
            {"key": b64encode(k.encode()).decode(), "value": b64encode(v.encode()).decode()}
            for k, v in sorted(self.values.items())
            if start <= k < end
        ]
        return json.dumps({"header": {}, **({"kvs": pairs} if pairs else {})}).encode()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Voter(FakeMooncake):
    """A Master among several, which takes somebody for the leader."""

    rpc = leader = "127.0.0.1:50051"
    ready = True

    def _answer(self, path: str) -> tuple[int, bytes]:
        if path != "/health":
            return super()._answer(path)
        role = "leader" if self.ready else "standby"
        told = {"role": role, "service_ready": self.ready, "leader_address": self.leader}
        return 200, json.dumps({**told, "view_version": 4}).encode()


@pytest.fixture
def etcd() -> Iterator[FakeEtcd]:
    made = FakeEtcd()
    yield made
    made.close()


@pytest.fixture
def voter() -> Iterator[Voter]:
    made = Voter()
    yield made
    made.close()


@contextmanager
def elected(etcd: FakeEtcd, voter: Voter, *before: str) -> Iterator[Elected]:
    port = int(voter.admin.rpartition(":")[2])
    master = f"etcd://{';'.join((*before, etcd.address))}"
    options = connection(master=master, cluster="c", admin_port=port, deadline_s=20.0)
    with closing(Elected(options, SystemClock())) as admin:
        yield admin


def test_the_master_that_etcd_names_is_asked_at_the_admin_port(
    etcd: FakeEtcd, voter: Voter
) -> None:
    etcd.values[VIEW.format("c")] = voter.rpc
    etcd.values[VIEW.format("d")] = "127.0.0.1:1"
    with elected(etcd, voter) as admin:
        health = admin.health()
        assert (health.address, health.leader, health.view) == (voter.admin, voter.rpc, "4")
        assert admin.query(health, ["k"])["k"].error == "OBJECT_NOT_FOUND"


def test_etcd_is_asked_before_every_look_so_that_a_deposed_leader_is_not_believed(
    etcd: FakeEtcd, voter: Voter
) -> None:
    etcd.values[VIEW.format("c")] = voter.rpc
    with elected(etcd, voter) as admin:
        assert admin.health().leader == voter.rpc
        etcd.values[VIEW.format("c")] = "127.0.0.1:50052"
        with pytest.raises(TransientError, match=r"names 127.0.0.1:50052 .* takes 127.0.0.1:50051"):
            admin.health()
        voter.leader = "127.0.0.1:50052"
        assert admin.health().leader == "127.0.0.1:50052"


@pytest.mark.parametrize(
    "named,ready,told_of",
    [
        ("127.0.0.1:50051", False, "role standby, not serving"),
        ("0.0.0.0:50051", True, "no address that others reach"),
        ("", True, "names  the leader of cluster c, which is no address"),
    ],
)
def test_a_leader_that_cannot_be_asked_is_refused_with_the_reason(
    etcd: FakeEtcd, voter: Voter, named: str, ready: bool, told_of: str
) -> None:
    etcd.values[VIEW.format("c")] = named
    voter.ready = ready
    with elected(etcd, voter) as admin, pytest.raises(TransientError, match=told_of) as refused:
        admin.health()
    assert refused.value.todo


def test_a_cluster_without_a_leader_names_those_that_have_one(etcd: FakeEtcd, voter: Voter) -> None:
    etcd.values[VIEW.format("mooncake_cluster")] = voter.rpc
    etcd.values["mooncake-store/other/else"] = "x"
    with (
        elected(etcd, voter) as admin,
        pytest.raises(TransientError, match="no leader of cluster c; it knows one of mooncake_cl"),
    ):
        admin.health()
    etcd.values.clear()
    with (
        elected(etcd, voter) as admin,
        pytest.raises(TransientError, match="knows no leader") as refused,
    ):
        admin.health()
    assert refused.value.why.endswith("of cluster c")


def test_any_etcd_that_answers_will_do_and_is_asked_first_then(
    etcd: FakeEtcd, voter: Voter
) -> None:
    etcd.values[VIEW.format("c")] = voter.rpc
    with elected(etcd, voter, "127.0.0.1:1") as admin:
        assert admin.health().leader == voter.rpc
        assert admin._endpoints == (etcd.address, "127.0.0.1:1")


@pytest.mark.parametrize("status,told_of", [(404, "answered 404"), (401, "answered 401")])
def test_an_etcd_that_refuses_is_named_with_its_answer(
    etcd: FakeEtcd, voter: Voter, status: int, told_of: str
) -> None:
    etcd.status = status
    with (
        elected(etcd, voter) as admin,
        pytest.raises(TransientError, match=f"{etcd.address}: ValueError: {told_of}"),
    ):
        admin.health()


def test_an_etcd_that_answers_nonsense_is_no_absence_of_a_leader(
    etcd: FakeEtcd, voter: Voter, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = b'{"kvs":' + b"[" * 100_000
    for answer in (b"", b"[]", deep, b'{"kvs": [{}]}', b'{"kvs": [{"key": "?"}]}', b'{"kvs": 5}'):
        monkeypatch.setattr(etcd, "_answer", lambda *_, answer=answer: answer)
        with (
            elected(etcd, voter) as admin,
            pytest.raises(TransientError, match="no answer that can be used"),
        ):
            admin.health()


def test_of_named_masters_the_one_that_etcd_names_is_asked_though_another_says_it_serves(
    etcd: FakeEtcd, voter: Voter
) -> None:
    with closing(Voter()) as deposed:
        deposed.leader = "127.0.0.1:50052"
        etcd.values[VIEW.format("c")] = deposed.leader
        options = connection(
            master=f"etcd://{etcd.address}", cluster="c", admin=f"{deposed.admin},{voter.admin}"
        )
        with closing(admin_of(options, SystemClock())) as admin:
            assert admin.health().address == deposed.admin
            etcd.values[VIEW.format("c")] = voter.rpc
            assert admin.health().address == voter.admin
            etcd.values[VIEW.format("c")] = "127.0.0.1:50053"
            with pytest.raises(TransientError, match=r"takes 127\.0\.0\.1:50051 for the leader"):
                admin.health()


@pytest.mark.parametrize("named", ["a b:1", "a\nb:1", "a\0b:1", "::1:1", "no-port"])
def test_a_leader_whose_address_is_none_is_one_that_does_not_answer(
    etcd: FakeEtcd, voter: Voter, named: str
) -> None:
    etcd.values[VIEW.format("c")] = named
    with elected(etcd, voter) as admin, pytest.raises(TransientError):
        admin.health()


# --- options ---


def connection(**options: Any) -> ConnectionOptions:
    return parse("tier", "mooncake-memory", options).connection


def test_one_line_is_enough_and_a_list_of_addresses_goes_before_it() -> None:
    alone = connection(master="10.0.0.1:50051")
    assert alone.admin == ("10.0.0.1:9003",)
    assert connection(master="10.0.0.1:50051", admin_port=9004).admin == ("10.0.0.1:9004",)
    assert type(admin_of(alone, SystemClock())) is Admin
    several = connection(master="etcd://a:2379;b:2379", admin_port=9004)
    assert (several.admin, several.admin_port) == ((), 9004)
    found = admin_of(several, SystemClock())
    assert isinstance(found, Elected)
    assert found._endpoints == ("a:2379", "b:2379")
    named = connection(master="etcd://a:2379", admin="m:1,n:1")
    assert named.admin == ("m:1", "n:1")
    assert isinstance(admin_of(named, SystemClock()), Elected)


@pytest.mark.parametrize(
    "options,told_of",
    [
        ({"master": "etcd://a:1,b:2"}, "etcd://host:port;host:port"),
        ({"master": "etcd://"}, "not host:port"),
        ({"master": "a:1", "admin_port": 0}, "no port"),
        ({"master": "a:1", "admin_port": "9003"}, "no port"),
        ({"master": "a:1", "admin_port": 9003, "admin": "a:2"}, "whole addresses"),
        ({"master": "a:1", "admin": " , "}, "names no Master"),
        ({"admin": "a:1"}, "master"),
    ],
)
def test_addresses_that_leave_it_open_are_refused(options: dict[str, object], told_of: str) -> None:
    with pytest.raises(ConfigError, match=told_of):
        connection(**options)
