"""What only the cluster knows of a sidecar's acts: last copies, strangers, amnesia, what was done.

A removal is judged by what is left when the Master carries it out. What the world took from readers
after the sidecar's call had begun is beyond any controller; a call that began after it had to know.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from tests.sim.mooncake.cluster import Act
from weightctl.adapters.conformance.simulation.removal import PUBLISHED
from weightctl.adapters.conformance.simulation.traces import PassTrace
from weightctl.controller.core.identity import Identity
from weightctl.controller.core.records import Availability, RevisionMetadata
from weightctl.controller.ports import Done, NoOp, Outcome

if TYPE_CHECKING:
    from tests.sim.mooncake.world import MooncakeWorld

Records = Mapping[Identity, RevisionMetadata]
CALM_S = 120.0
"""So long after a disturbance what was short is written down as short, and has come back."""
LOT_S = 20.0
"""A parking segment outlives the call that made it: so old may be what it saw, grace and all."""


class Oracles:
    """Hears of each replica that a sidecar took, and of each answer that says so."""

    def __init__(self, world: "MooncakeWorld") -> None:
        self._world = world
        self._cluster = world.cluster
        self._first_s = float("-inf")
        """When a sidecar first saw a cluster that has forgotten everything."""
        self._cluster.taken = self._taken

    def seen(self) -> None:
        """A tier of a sidecar has given an observation."""
        if self._first_s < self._cluster.forgot_s:
            self._first_s = self._world.loop.time()

    def told(
        self,
        tier: str,
        keys: Sequence[str],
        outcomes: Sequence[Outcome],
        began_s: float,
        *,
        there: bool,
    ) -> None:
        """A call that makes or takes replicas has an answer: what it calls done is so."""
        self._cluster.tick()
        if self._cluster.shaken_s >= began_s:
            return
        for key, outcome in zip(keys, outcomes, strict=False):
            if isinstance(outcome, Done | NoOp) and self._cluster.stirred_s.get(key, 0.0) < began_s:
                shown = self._cluster.shows(key, tier)
                if shown is not there:
                    self._world.violate("false-done", f"{outcome} for {key} in {tier}: {shown}")

    def _taken(self, act: Act, key: str, kind: str, content: bytes) -> None:
        world = self._world
        found = world.members.get(key)
        if act.actor == "rival" and (found is not None or key in self._cluster.strangers):
            world.violate("foreign", f"another store took {key}")
        if found is None:
            if key in self._cluster.strangers and not self._cluster.readable(key):
                world.violate("stranger", f"{act.actor} took {key}, which is somebody else's")
            return
        world.changed(kind, (found[0], key), "remove")
        if sha256(content).digest() == found[1].sha256:  # else no good copy was taken
            self._left(act, key, kind)

    def _left(self, act: Act, key: str, kind: str) -> None:
        """Of a member of a published revision a good copy is left, or was when it was looked."""
        world = self._world
        group_id, member = world.members[key]
        record = world.ledger.records.get(world.by_group[group_id].identity)
        if record is None or record.availability not in PUBLISHED or world.good_copies(member):
            return
        looked_s = max(act.began_s, world.loop.time() - LOT_S)
        if self._cluster.shaken_s < looked_s:
            world.violate("last-copy", f"{key} lost its last good copy with its {kind} replica")
        else:
            world.happened("a proven copy goes amid a drop")

    def drops(self, actor: str, tier: str, trace: PassTrace | None) -> None:
        """A drop is sent: a cluster that forgot everything was seen for as long as it has to be."""
        world, forgot_s = self._world, self._cluster.forgot_s
        if forgot_s == float("-inf") or trace is None or trace.started_s <= forgot_s:
            return
        age_s = world.loop.time() - self._first_s if self._first_s > forgot_s else 0.0
        if age_s < world.policy.settle_s - 0.01:
            world.violate("settle", f"{actor} drops at {tier} after {age_s:.1f} s")

    def written(self, before: Records, after: Records) -> None:
        """A published revision is not called short of anything that a reader could have."""
        for identity, record in after.items():
            known = before.get(identity)
            sound = known is not None and known.availability is Availability.READY
            if not sound or record.availability is not Availability.DEGRADED:
                continue
            members = self._world.subjects[identity].members.values()
            whole = all(map(self._world.good_copies, members))
            if whole and self._world.loop.time() - self._cluster.shaken_s > CALM_S:
                self._world.violate("false-loss", f"{identity} is {record}, and all is there")
