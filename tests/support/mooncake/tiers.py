"""Memory tiers over an imitated Mooncake, for one store or several."""

from dataclasses import replace
from pathlib import Path

from tests.support.mooncake.harness import Named, connection_options
from weightctl.adapters.conformance.suite.material import HOLDER, context
from weightctl.adapters.mooncake.connection import shared
from weightctl.adapters.mooncake.options import MooncakeOptions
from weightctl.adapters.mooncake.tier import MooncakeTier
from weightctl.controller.clock import SystemClock
from weightctl.controller.ports import Clock


class Shifted(SystemClock):
    """The clock of the machine, with hours that a test lets pass."""

    ahead_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s


def tier_of(
    medium: Named,
    folder: Path,
    holder: str = HOLDER,
    *,
    clock: Clock | None = None,
    **changes: object,
) -> MooncakeTier:
    """A tier with a state directory for each store."""
    library = "tests.support.mooncake.fake_client"
    options = connection_options(medium, library=library, **changes)
    made = MooncakeOptions(kind="mooncake-memory", connection=options)
    opened = context(folder / holder, holder=holder)
    if clock is not None:
        opened = replace(opened, clock=clock)
    return MooncakeTier("memory", made, shared(options, opened))
