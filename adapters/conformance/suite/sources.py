"""Cases of sources that fail in ways of their own.  Layer: conformance."""

import errno

import pytest

from weightctl.adapters.conformance.grades import Grade
from weightctl.adapters.conformance.suite.cases import TierCases
from weightctl.adapters.conformance.suite.material import (
    content_of,
    failing_source,
    fence,
    item_of,
    kinds,
    member_of,
    read_all,
    states,
    store_one,
)
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import (
    ConfigError,
    TerminalError,
    TransientError,
    UnknownOutcomeError,
)
from weightctl.controller.ports import StoreItem, Tier

ABSENT, COMPLETE = MemberState.ABSENT, MemberState.COMPLETE


class ContractOfSources(TierCases):
    """Whatever a source does is an outcome of its item alone."""

    grade = Grade.SILVER

    @pytest.mark.parametrize(
        "error, kind",
        [
            (ValueError("of somebody else"), "Permanent"),
            (ExceptionGroup("a task group", [KeyError("of somebody else")]), "Permanent"),
            (ConfigError("the source", "it is set up wrongly"), "Permanent"),
            (TerminalError("the source", "it is gone for good"), "Permanent"),
            (PermissionError(errno.EACCES, "denied"), "Permanent"),
            (OSError(errno.EIO, "no answer"), "Retry"),
            (MemoryError(), "Retry"),
            (TransientError("the source", "it is busy"), "Retry"),
            (UnknownOutcomeError("the source", "no answer"), "Retry"),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value,
    )
    @pytest.mark.parametrize("when", ["opened", "read"])
    async def test_whatever_a_source_raises_is_an_outcome_of_its_item_alone(
        self, tier: Tier, error: Exception, kind: str, when: str
    ) -> None:
        hurt, sound = member_of("a", content_of(100)), member_of("b", content_of(200))
        source = failing_source(content_of(100), error, when)
        batch = [
            StoreItem(member=hurt, open_source=source),
            item_of(sound, content_of(200)),
        ]
        assert kinds(await tier.store(batch, fence())) == [kind, "Done"]
        assert await states(tier, hurt, sound) == [ABSENT, COMPLETE]
        assert await read_all(tier, sound) == content_of(200)
        await store_one(tier, "a", content_of(100))

    async def test_a_source_that_fails_to_close_has_given_its_bytes(self, tier: Tier) -> None:
        content = content_of(100)
        member = member_of("payload", content)
        source = failing_source(content, ValueError("of somebody else"), "closed")
        batch = [StoreItem(member=member, open_source=source)]
        assert kinds(await tier.store(batch, fence())) == ["Done"]
        assert await read_all(tier, member) == content
