"""No Master for long, beside the whole sidecar: what is asked, kept and said meanwhile."""

import gc
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from tests.sim.mooncake.disasters import ACTIONS
from tests.sim.mooncake.world import TIERS, MooncakeWorld
from weightctl.adapters.conformance.simulation.script import Action, Script, Setting
from weightctl.controller.core.records import RevisionMetadata
from weightctl.controller.runtime.health import Health

if TYPE_CHECKING:
    from weightctl.adapters.conformance.simulation.world import World

SPANS = 3
BEGINS_S, REVISIONS, AFTER_S = 100.0, 2, 600.0


@dataclass(slots=True)
class Diary:
    """What was seen at the end of each span of the outage, and a while after it."""

    broken: str = ""
    """The rule that broke."""
    health: list[Health] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    """Objects in this process."""
    said: list[int] = field(default_factory=list)
    """Log lines in that span."""
    asked: list[float] = field(default_factory=list)
    """HTTP requests so far."""
    records: list[RevisionMetadata] = field(default_factory=list)
    """In the end."""


def outage(span_s: float) -> Diary:
    """Two revisions, one amid an eviction, and no Master for three spans."""
    diary = Diary()

    async def evening(of: "World", _: Action) -> None:
        leader = await of.some_leader()
        await leader.controller.refresh_metrics()
        diary.health.append(leader.controller.health())
        diary.asked.append(diary.health[-1].media["mem"].numbers["http_health"])
        said = cast("MooncakeWorld", of).said
        diary.said.append(said.total())
        said.clear()
        gc.collect()
        diary.held.append(len(gc.get_objects()))

    world = MooncakeWorld(_script(span_s))
    world.actions = {**ACTIONS, "evening": evening}
    logger = logging.getLogger("weightctl")
    level, quiet = logger.level, logging.NullHandler()
    logger.setLevel(logging.INFO)
    logger.addHandler(quiet)
    try:
        report = world.run()
    finally:
        logger.setLevel(level)
        logger.removeHandler(quiet)
    diary.broken = report.oracle and f"{report.oracle}: {report.detail}"
    diary.records = list(world.ledger.records.values())
    return diary


def _script(span_s: float) -> Script:
    back_s = BEGINS_S + SPANS * span_s
    steps = (
        *((0.0, "import", number) for number in range(REVISIONS)),
        (BEGINS_S - 1, "evict", 0),
        (BEGINS_S, "master_stops", 0),
        (BEGINS_S + 60, "evict", 1),
        *((BEGINS_S + span * span_s - 1, "evening", 0) for span in range(1, SPANS + 1)),
        (back_s, "master_starts", 0),
        (back_s + AFTER_S, "evening", 0),
    )
    actions = tuple(Action(at_s=at_s, name=name, of=of, amount=1.0) for at_s, name, of in steps)
    setting = Setting(revisions=REVISIONS, payloads=2, tiers=TIERS, latency_s=0.02)
    return Script(seed=1, setting=setting, actions=actions, linger_s=1.0)
