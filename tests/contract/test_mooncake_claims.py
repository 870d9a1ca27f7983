"""A claim that was taken over comes back from a real host's disk, beside the owner's, below it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.mooncake.lab import PATIENT, Cluster, cluster, needs_wheel, until
from tests.support.mooncake.tiers import REAL, tier_of
from weightctl.adapters.conformance.suite.material import member_of, states
from weightctl.adapters.mooncake.ownership.claims import OWNER_PREFIX
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.core.observation import MemberState

pytestmark = needs_wheel

MEMBER = member_of("payload", b"content")


@pytest.fixture
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("claims"), PATIENT, hosts=1, segment_mib=64) as made:
        yield made


async def test_after_a_power_failure_the_owner_has_its_cluster_and_the_former_one_has_not(
    real: Cluster, tmp_path: Path
) -> None:
    async with store_of(real, tmp_path, "a") as former:
        assert await states(former, MEMBER) == [MemberState.ABSENT]
        await to_thread.run_sync(real.settle)
    async with store_of(real, tmp_path, "b", adopt=True) as owner:
        assert await states(owner, MEMBER) == [MemberState.ABSENT]
        await to_thread.run_sync(real.settle)
    await to_thread.run_sync(power_failure, real)
    async with store_of(real, tmp_path, "a") as former:
        assert await states(former, MEMBER) == [MemberState.UNKNOWN]
    async with store_of(real, tmp_path, "b") as owner:
        assert await states(owner, MEMBER) == [MemberState.ABSENT]
    (claim,) = await to_thread.run_sync(claims, real)
    assert claim.startswith(f"{OWNER_PREFIX}b/")


def store_of(real: Cluster, folder: Path, holder: str, **changes: object) -> MooncakeTier:
    return tier_of(real, folder, holder, library=REAL, **changes)  # type: ignore[arg-type]


def power_failure(real: Cluster) -> None:
    real.stop_master()
    real.hosts[0].kill()
    real.start_master()
    real.hosts[0].start()
    until("the host has brought both back", lambda: len(claims(real)) == 2)


def claims(real: Cluster) -> list[str]:
    return [key for key in real.get("/get_all_keys").split() if key.startswith(OWNER_PREFIX)]
