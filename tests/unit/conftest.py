"""What several unit tests use."""

from collections.abc import Iterator

import pytest

from tests.support.mooncake.fake import FakeMooncake, fake


@pytest.fixture
def imitated() -> Iterator[FakeMooncake]:
    """A Mooncake that nobody has used yet."""
    with fake() as made:
        yield made
