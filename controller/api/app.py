"""What the verbs act on: an open store with its tiers and, where it runs, the loop.  Layer: api."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from weightctl.controller.api.planning import Planning
from weightctl.controller.api.supposing import Subject, owners
from weightctl.controller.core.records import Availability
from weightctl.controller.errors import require

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.observation import Members
    from weightctl.controller.core.policy import Policy
    from weightctl.controller.core.records import RevisionMetadata
    from weightctl.controller.ports import Clock, Tier
    from weightctl.controller.runtime.controller import Controller
    from weightctl.controller.store.store import WeightMetadataStore
    from weightctl.controller.weightstore.facade import WeightStore


@dataclass(slots=True, kw_only=True)
class App:
    """Built by the composition root; everything in it is open."""

    store: WeightMetadataStore
    tiers: Sequence[Tier]
    weights: WeightStore
    clock: Clock
    policy: Policy
    """May be replaced while the loop runs."""
    lease_ttl_ms: int
    """Of a lease for which nobody says otherwise."""
    controller: Controller | None
    """None where an operation is only recorded and another process carries it out."""

    def loop(self) -> Controller:
        """The running loop; only for callers that have asked for one."""
        require(self.controller is not None, "the application was opened without a loop")
        return cast("Controller", self.controller)

    def planning(self) -> Planning:
        """Plans from the open store and tiers."""
        return Planning(
            records=StoreRecords(self.store),
            tiers=self.tiers,
            policy=self.policy,
            clock=self.clock,
            running=self.controller,
            import_options=self.weights.options,
        )


class StoreRecords:
    """Records of an open store."""

    def __init__(self, store: WeightMetadataStore) -> None:
        self._store = store

    async def subject(self, identity: Identity) -> Subject:
        """One revision.  Raises NOT_FOUND."""
        return self._subject((await self._store.get(identity=identity)).metadata)

    def subjects(self) -> Iterator[Subject]:
        """Every revision that is no tombstone, identity order."""
        for record in sorted(self._store.records(), key=lambda found: found.identity.sort_key()):
            if record.availability is not Availability.DELETED:
                yield self._subject(record)

    async def members(self, group_id: str) -> Members:
        """Members of a payload group, key order."""
        return await self._store.directory.members(group_id)

    def known_tiers(self) -> Sequence[str]:
        """Names of all tiers that the store has ever used."""
        return self._store.tier_epochs.names()

    async def groups(self) -> tuple[frozenset[str], frozenset[str]]:
        """Group ids that have an owner, and those of tombstones."""
        return owners(self._store.records(), await self._store.directory.groups())

    def _subject(self, record: RevisionMetadata) -> Subject:
        return Subject(
            record=record,
            operation=self._store.operation(identity=record.identity),
            leases=self._store.leases(identity=record.identity),
            damage=self._store.damage.rows(record.manifest.payload_group_id),
        )
