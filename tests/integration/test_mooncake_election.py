"""One line, `master = "etcd://..."`, beside two real Masters: the leader is found and followed."""

from collections.abc import Iterator
from contextlib import closing, suppress
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


def refusal(admin: Admin) -> str:
    """Why there is no leader for it."""
    with pytest.raises(TransientError) as refused:
        admin.health()
    return str(refused.value)


def test_the_leader_is_found_through_etcd_alone_and_followed_to_the_next_one(two: Apart) -> None:
    """Either may lose the lead to the other one at any time (see `Pair`), so all is asked again."""
    given = {"master": two.master, "cluster": CLUSTER_ID, "admin_port": two.admin_port}
    refused: list[str] = []
    seen: list[Health] = []

    strange = parse("memory", "mooncake-memory", {**given, "cluster": "elsewhere"}).connection
    told = f"no leader of cluster elsewhere; it knows one of {CLUSTER_ID}"
    clock = SystemClock()
    with closing(admin_of(strange, clock)) as admin:
        until("it is told whom etcd knows", lambda: told in refusal(admin))

    def found(view: int) -> bool:
        health = followed(admin, refused)
        if health is None or int(health.view) <= view or health.address not in two.health():
            return False
        seen.append(health)
        return True

    def lists() -> bool:
        with suppress(TransientError):
            return admin.all_keys(admin.health()) == []
        return False

    options = parse("memory", "mooncake-memory", given).connection
    with closing(admin_of(options, clock)) as admin:
        until("a leader is found", lambda: found(-1))
        until("it lists the keys, of which there are none", lists)
        two.stop_master()
        until("another leader is found", lambda: found(int(seen[0].view)))
    assert all("the leader of cluster" in why or "knows no leader" in why for why in refused)
