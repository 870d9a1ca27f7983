"""One connection for one cluster in one state directory, and one cluster for one book."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.mooncake_fake import FakeMooncake, fake
from tests.support.mooncake_harness import connection_options
from weightctl.adapters.conformance.suite.material import context
from weightctl.adapters.mooncake.connection import Connection, shared
from weightctl.controller.errors import ConfigError


@pytest.fixture
def imitated() -> Iterator[FakeMooncake]:
    with fake() as made:
        yield made


def test_tiers_of_one_cluster_share_one_connection_or_are_told_what_differs(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    options, opened = connection_options(imitated), context(tmp_path)
    first = shared(options, opened)
    assert shared(options, opened) is first
    for change, told in (
        ({"appear_s": 4.5}, "appear_s = 60.0 and 4.5"),
        ({"master": "10.9.9.9:1"}, "master = "),
        ({"adopt": True}, "adopt = False and True"),
    ):
        with pytest.raises(ConfigError, match=told) as refused:
            shared(replace(options, **change), opened)
        assert "[mooncake]" in str(refused.value)
    assert shared(replace(options, cluster="other"), opened) is not first


async def test_a_connection_that_is_in_use_is_not_opened_with_other_options(
    imitated: FakeMooncake, tmp_path: Path
) -> None:
    options = connection_options(imitated, library="tests.support.mooncake_fake_client")
    other = replace(options, appear_s=4.5)
    async with entered(shared(options, context(tmp_path))):
        with pytest.raises(ConfigError, match="appear_s"):
            shared(other, context(tmp_path))
    async with entered(shared(other, context(tmp_path))):
        pass


@asynccontextmanager
async def entered(connection: Connection) -> AsyncIterator[None]:
    await connection.enter()
    try:
        yield
    finally:
        await connection.leave()
