"""What is truly in a cluster, as the judges of the simulation look at a medium."""

from typing import TYPE_CHECKING

from weightctl.adapters.conformance.reference import Name, Stored
from weightctl.controller.core.observation import Member

if TYPE_CHECKING:
    from tests.sim.mooncake.world import MooncakeWorld


class View:
    """The replicas of one kind of the managed members."""

    limit_bytes = 1 << 40

    def __init__(self, world: "MooncakeWorld", tier: str) -> None:
        self._world = world
        self._hot = tier == "mem"
        self.tier = tier
        self.away = False
        self.served_term = 0
        self.destroyed_s: dict[tuple[Name, str], float] = {}

    @property
    def stored(self) -> dict[Name, list[Stored]]:
        """What a reader could have of each member now."""
        found = {}
        self._world.cluster.tick()
        for key, (group_id, member) in self._world.members.items():
            content = self._content(key)
            if content is not None:
                stored = Stored("", bytearray(content), member.sha256)
                found[group_id, key] = [stored]
        return found

    def every(self) -> list[tuple[Name, Stored]]:
        return [(name, stored) for name, found in self.stored.items() for stored in found]

    def seen(self, member: Member) -> Stored | None:
        """What the Master shows for a member; its bytes may be others."""
        cluster = self._world.cluster
        cluster.tick()
        one = cluster.objects.get(member.key)
        if one is None or not one.complete or len(one.content) != member.size_bytes:
            return None
        shown = one.memory if self._hot else one.disk
        return Stored("", bytearray(one.content), member.sha256) if shown else None

    def _content(self, key: str) -> bytes | None:
        cluster = self._world.cluster
        one = cluster.objects.get(key)
        kinds = cluster.readable(key)
        if one is None or self.tier not in kinds:
            return None
        return bytes(one.content) if self._hot else cluster.kept(key, one)
