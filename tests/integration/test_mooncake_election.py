"""One line, `master = "etcd://..."`, beside two real Masters: the leader is found and followed."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.mooncake.lab import CLUSTER_ID, Pair, needs_wheel, require_etcd, until
from weightctl.adapters.mooncake.master.admin import Admin, Health
from weightctl.adapters.mooncake.master.election import admin_of
from weightctl.adapters.mooncake.options import parse
from weightctl.controller.clock import SystemClock
from weightctl.controller.errors import TransientError

pytestmark = needs_wheel


class Apart(Pair):
    """Its Masters are on hosts of their own, as far as loopback has some; one port for both."""

    admin_port = 0

    def _start_one(self) -> None:
        self.admin_port = self.admin_port or self.ports.draw()
        host = f"127.0.0.{len(self._masters) + 1}"
        plain = self._flags
        self._flags = (*plain, f"--rpc_address={host}", f"--metrics_host={host}")
        address = f"{host}:{self.admin_port}"
        self._masters[address] = started = self._spawn(self.ports.draw(), self.admin_port)
        self._flags = plain
        until("a Master answers or has ended", lambda: self._up(started, address))
        assert started.poll() is None, (self._folder / "master.log").read_text()[-2000:]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Apart]:
    require_etcd()
    with closing(Apart(tmp_path, ("--enable_offload=true",))) as made:
        made.start_master()
        yield made


def followed(admin: Admin, refused: list[str]) -> Health | None:
    """Who leads now, or None with the reason noted."""
    try:
        return admin.health()
    except TransientError as error:
        refused.append(f"{error.what}\n{error.why}")
        return None


def test_the_leader_is_found_through_etcd_alone_and_followed_to_the_next_one(two: Apart) -> None:
    given = {"master": two.master, "cluster": CLUSTER_ID, "admin_port": two.admin_port}
    refused: list[str] = []
    seen: list[Health] = []

    strange = parse("memory", "mooncake-memory", {**given, "cluster": "elsewhere"}).connection
    told = f"no leader of cluster elsewhere; it knows one of {CLUSTER_ID}"
    clock = SystemClock()
    with closing(admin_of(strange, clock)) as admin, pytest.raises(TransientError, match=told):
        admin.health()

    def found(other_than: str) -> bool:
        health = followed(admin, refused)
        if health is None or health.address == other_than:
            return False
        seen.append(health)
        return True

    options = parse("memory", "mooncake-memory", given).connection
    with closing(admin_of(options, clock)) as admin:
        until("a leader is found", lambda: found(""))
        assert seen[0].address in two.health()
        assert admin.all_keys(seen[0]) == []
        two.stop_master()
        until("another leader is found", lambda: found(seen[0].address))
    assert int(seen[1].view) > int(seen[0].view)
    assert all("the leader of cluster" in why or "knows no leader" in why for why in refused)
