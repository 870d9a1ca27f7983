"""Faults of the adapter that the simulation must find, each by an oracle that is there for it."""

from collections.abc import Mapping

from tests.sim.mooncake.scenarios import SCENARIOS
from tests.sim.planting import Planted, planted

_MOONCAKE = "adapters.mooncake."
_UNREAD = Planted(
    at=_MOONCAKE + "proof.on_disk:one_copy",
    old="return None if copies[0].endpoint in unread_disks else copies[0]",
    new="return None",
)
"""As beside hosts of another release: reading the very file would show the fault first."""

PLANTED = {
    "every cold copy counts": (
        Planted(at=_MOONCAKE + "proof.cold:doubts", old="return found", new="return {}"),
        _UNREAD,
    ),
    "a host that does not answer counts": (
        Planted(at=_MOONCAKE + "proof.cold:silent_of", old="return found", new="return {}"),
        _UNREAD,
    ),
    "a file of unknown origin counts": (
        Planted(
            at=_MOONCAKE + "proof.cold:_strange",
            old="copy.place != row.keeper",
            new="copy.place == ''",
        ),
        _UNREAD,
    ),
    "a lot goes with whatever is on it": (
        Planted(
            at=_MOONCAKE + "parking.lot:Lot._empty",
            old="if job.active or job.blocked != len(safe) or safe != there or not safe:",
            new="if not safe:",
        ),
    ),
    "the epoch never changes": (
        Planted(
            at=_MOONCAKE + "looking:Looking._epoch_of",
            old="return self._epoch.named(before)",
            new='return "one"',
        ),
        # That nearly everything has changed would be a second reason to wait.
        Planted(
            at="controller.runtime.settling:_is_trusted",
            old="return changed <= policy.mass_change_share",
            new="return True or policy.mass_change_share",
        ),
    ),
    "no answer is absence": (
        Planted(
            at="controller.core.observation:unknown_observation",
            old='TierObservation(states=bytes(count), epoch=""',
            new='TierObservation(states=bytes([int(MemberState.ABSENT)]) * count, epoch="x"',
        ),
    ),
    "a look promotes": (
        Planted(
            at=_MOONCAKE + "tier:MooncakeTier.observe",
            old="if kind is MEMORY:\n            await",
            new="if kind is MEMORY:\n"
            "            from weightctl.adapters.mooncake.client.engine import Engine\n"
            "            async with self._connection.clients.reader() as worker:\n"
            "                await worker.call(Engine.touch, list(members.keys))\n"
            "            await",
        ),
    ),
    "what Mooncake makes is not waited for": (
        Planted(
            at=_MOONCAKE + "storing:Storing._appear",
            old="if state is MemberState.COMPLETE:",
            new="if True:",
        ),
    ),
    "whoever comes has the cluster": (
        Planted(
            at=_MOONCAKE + "ownership.claim:Claim._decide",
            old="if rivals and not adopting:",
            new="if False:",
        ),
    ),
    "a cleared replica is gone": (
        Planted(
            at=_MOONCAKE + "removal:_drop_owned",
            old="state_of(entry, MEMORY, member.size_bytes) is MemberState.ABSENT",
            new="True",
        ),
        _UNREAD,  # only a read from memory takes a lease, which keeps the replica
    ),
}

_DEAD = (
    "evict beside a host that has just died",
    "evict beside the other host that has just died",
)
"""Which of them has the copies depends on what was put before."""
MUST_FIND: Mapping[str, tuple[tuple[str, ...], set[str]]] = {
    "every cold copy counts": (_DEAD, {"last-copy"}),
    "a host that does not answer counts": (_DEAD, {"last-copy"}),
    "a file of unknown origin counts": (
        ("an old file comes back before the put is offloaded",),
        {"last-copy"},
    ),
    "a lot goes with whatever is on it": (("park beside strangers",), {"stranger"}),
    "the epoch never changes": (("evict when a Master has just forgotten",), {"settle"}),
    "no answer is absence": (("no Master answers for an hour",), {"false-loss"}),
    "a look promotes": (("the whole life",), {"observe-lease"}),
    "what Mooncake makes is not waited for": (("the whole life",), {"false-done"}),
    "whoever comes has the cluster": (
        ("another store beside it, and Masters that forget",),
        {"foreign"},
    ),
    "a cleared replica is gone": (("the whole life",), {"false-done"}),
}
"""By planted fault the scenarios in one of which it shows, and the oracles that may find it."""


def hunt(fault: str) -> tuple[str, str]:
    """(oracle, scenario) that finds a planted fault; empty when none does."""
    scenarios, oracles = MUST_FIND[fault]
    with planted(*PLANTED[fault]):
        for scenario in scenarios:
            oracle = SCENARIOS[scenario].play().report.oracle
            if oracle in oracles:
                return oracle, scenario
    return "", ""
