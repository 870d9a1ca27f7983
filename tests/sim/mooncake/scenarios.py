"""Histories that chance seldom meets, each for a fault that was found once or that may come."""

from collections.abc import Mapping

from tests.sim.mooncake.histories import History
from tests.sim.mooncake.world import TIERS
from weightctl.adapters.conformance.simulation.script import Action, Script, Setting


def _history(*steps: tuple[float, str, int, float], latency_s: float = 0.02) -> History:
    actions = tuple(
        Action(at_s=at_s, name=name, of=of, amount=amount) for at_s, name, of, amount in steps
    )
    setting = Setting(revisions=1, payloads=2, tiers=TIERS, latency_s=latency_s)
    return History(script=Script(seed=1, setting=setting, actions=actions))


_IN_BOTH = (
    (0.0, "import", 0, 0.0),
    (30.0, "evict", 0, 1.0),
    (60.0, "rehydrate", 0, 1.0),
)
"""A revision whose copies on disks lie on other hosts than those in memory, some of them."""

SCENARIOS: Mapping[str, History] = {
    "the whole life": _history(*_IN_BOTH, (100.0, "evict", 0, 1.0), (160.0, "delete", 0, 1.0)),
    "evict beside a host that has just died": _history(
        *_IN_BOTH,
        (100.0, "evict", 0, 1.0),
        (101.0, "host_dies", 0, 0.0),
        (300.0, "host_returns", 0, 0.0),
    ),
    "evict beside the other host that has just died": _history(
        *_IN_BOTH,
        (100.0, "evict", 0, 1.0),
        (101.0, "host_dies", 1, 0.0),
        (300.0, "host_returns", 1, 0.0),
    ),
    "evict when a Master has just forgotten": _history(
        *_IN_BOTH,
        (100.0, "master_stops", 0, 0.0),
        (101.0, "master_starts", 0, 0.0),
        (112.5, "rehydrate", 0, 1.0),
        (113.0, "wake", 0, 1.0),
        (116.0, "evict", 0, 1.0),
        (117.0, "evict", 0, 1.0),
        (118.0, "evict", 0, 1.0),
        (119.0, "evict", 0, 1.0),
    ),
    "no Master answers for an hour": _history(
        (0.0, "import", 0, 0.0),
        (40.0, "master_stops", 0, 0.0),
        (3640.0, "master_starts", 0, 1.0),
    ),
    "an old file comes back before the put is offloaded": _history(
        (0.0, "old_files", 0, 0.0),
        (1.0, "host_dies", 0, 0.0),
        (2.0, "offload_slow", 1, 1.0),
        (16.0, "import", 0, 0.0),
        (25.0, "host_returns", 0, 0.0),
        (40.0, "evict", 0, 1.0),
        (300.0, "offload_goes_on", 1, 0.0),
    ),
    "park beside strangers": _history(
        (0.0, "import", 0, 0.0),
        (40.0, "kill", 0, 0.0),
        (60.0, "evict", 0, 1.0),
        *((60.0 + step * 0.25, "stranger_puts", step, 0.0) for step in range(120)),
    ),
    "a stranger's key names a member behind a comma": _history(
        (0.0, "import", 0, 0.0),
        (20.0, "master_stops", 0, 0.0),
        (21.0, "master_starts", 0, 0.0),
        (60.0, "stranger_tricks", 0, 0.0),
        (70.0, "kill", 0, 0.0),
        (100.0, "evict", 0, 1.0),
    ),
    "another store beside it, and Masters that forget": _history(
        (0.0, "import", 0, 0.0),
        (20.0, "rival", 200, 0.0),
        (40.0, "evict", 0, 1.0),
        (70.0, "master_stops", 0, 0.0),
        (71.0, "master_starts", 0, 0.0),
        (120.0, "rehydrate", 0, 1.0),
        (150.0, "kill", 0, 0.0),
        (150.5, "master_stops", 0, 0.0),
        (151.0, "master_starts", 0, 0.0),
        (190.0, "evict", 0, 1.0),
    ),
    "park what hosts have brought back, at a slow Master": _history(
        *_IN_BOTH,
        (100.0, "master_stops", 0, 0.0),
        (101.0, "master_starts", 0, 0.0),
        (160.0, "rehydrate", 0, 1.0),
        (200.0, "evict", 0, 1.0),
        latency_s=0.4,
    ),
}
