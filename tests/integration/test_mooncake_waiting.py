"""`weightctl run` beside a Master that comes late, hangs, dies and comes back: what it tells."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import IDENTITY, Cli
from tests.support.mooncake.lab import LEASE_TTL_S, Cluster, needs_wheel
from weightctl.controller.api import client

pytestmark = needs_wheel

SECTION = """
[resync]
working_s = 1.0
published_s = 1.0

[policy]
settle_s = 1.0

[mooncake]
admin = "{admin}"
master = "{master}"
lease_ttl_s = {lease_ttl_s}
claim_s = 0.1
deadline_s = 15

[[tier]]
name = "memory"
kind = "mooncake-memory"

[[tier]]
name = "ssd"
kind = "mooncake-local-disk"
capacity_bytes = "1GiB"
"""


@pytest.fixture
def unborn(tmp_path: Path) -> Iterator[Cluster]:
    """A Master whose addresses are known and which does not run."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    with closing(Cluster(folder, ("--enable_offload=true", "--client_ttl=120"))) as made:
        yield made


def health(cli: Cli) -> dict[str, Any]:
    """What the running controller says of itself."""
    connection = client.connect(str(cli.state_dir))
    assert connection is not None
    return dict(client.request(connection, "health", {}, lambda _: None))


def becomes(cli: Cli, holds: Callable[[dict[str, float]], bool]) -> tuple[str, dict[str, float]]:
    """Wait until the numbers of the Master's tiers hold; (state in words, numbers)."""
    told: list[Any] = [None]

    def seen() -> bool:
        told[0] = health(cli)["media"]
        assert told[0]["memory"].keys() == told[0]["ssd"].keys() == {"state", "numbers"}
        return holds(told[0]["memory"]["numbers"])

    cli.wait(seen, lambda: f"{told[0]}\n{cli.log()}")
    return told[0]["memory"]["state"], told[0]["memory"]["numbers"]


def test_a_sidecar_waits_for_its_master_and_tells_every_outage(
    unborn: Cluster, tmp_path: Path
) -> None:
    section = SECTION.format(admin=unborn.admin, master=unborn.master, lease_ttl_s=LEASE_TTL_S)
    cli = Cli(tmp_path, (), extra=section)
    with cli.running():
        state, numbers = becomes(cli, lambda told: told["outage_seconds"] > 0)
        assert "no Master has served" in state
        assert (numbers["serving"], numbers["outages"], numbers["client_connect"]) == (0, 0, 0)
        assert health(cli)["ready"], "an outage of a tier is none of the controller"

        unborn.start_master()
        unborn.add_host(256)
        state, numbers = becomes(cli, lambda told: told["serving"] == 1)
        assert state == f"leader {unborn.admin} serves"
        waited_s = numbers["outage_seconds_total"]
        assert waited_s > numbers["outage_seconds"] == 0
        cli.imported()
        assert cli.json("get", IDENTITY)["availability"] == "READY"
        _, numbers = becomes(cli, lambda told: told["http_batch_query_keys"] > 0)
        assert numbers["epoch_changes"] == 1
        assert numbers["client_end"] >= 2

        unborn.freeze()
        state, numbers = becomes(cli, lambda told: told["serving"] == 0)
        assert f"{unborn.admin} served last" in state
        assert numbers["outages"] == 1
        assert cli.json("get", IDENTITY)["availability"] == "READY"
        unborn.thaw()
        _, numbers = becomes(cli, lambda told: told["serving"] == 1)
        assert numbers["outage_seconds_total"] > waited_s
        assert numbers["epoch_changes"] == 1, "what hung has forgotten nothing"

        unborn.stop_master()
        _, numbers = becomes(cli, lambda told: told["serving"] == 0)
        assert numbers["outages"] == 2
        unborn.start_master()
        becomes(cli, lambda told: told["serving"] == 1)
        # Memory was forgotten; the host reports its disk again.
        cli.wait(lambda: cli.json("get", IDENTITY)["residency"] == "COLD", cli.log)
        _, numbers = becomes(cli, lambda told: told["epoch_changes"] == 2)
        assert "no Master" not in cli.run("doctor").out
        unborn.stop_master()
    assert "Traceback" not in cli.log()
