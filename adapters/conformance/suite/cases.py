"""What every class of cases stands on: the harness and an entered tier.  Layer: conformance."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import pytest
import pytest_asyncio

from weightctl.adapters.conformance.grades import Grade
from weightctl.adapters.conformance.suite.harness import TierHarness
from weightctl.controller.ports import Tier


class TierCases:
    """Base of the cases.  A runner names its harness in `harness_type`, or gives the fixture."""

    pytestmark: ClassVar = pytest.mark.asyncio
    grade: ClassVar[Grade]
    """The lowest grade that needs the cases of a class; each class states its own."""
    harness_type: ClassVar[type[TierHarness]]

    @pytest.fixture
    def harness(self, tmp_path: Path) -> TierHarness:
        """One medium for one case."""
        return self.harness_type(tmp_path)

    @pytest_asyncio.fixture
    async def tier(self, harness: TierHarness) -> AsyncIterator[Tier]:
        """A tier over that medium, entered."""
        async with harness.tier() as tier:
            yield tier
