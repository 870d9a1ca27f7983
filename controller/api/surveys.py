"""Verbs that only look: plans, explanations, dry runs, tensors, the tier list.  Layer: api.

The same functions answer for an open application and for a state directory that nobody holds.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from weightctl.controller.api import examining, importing, requests, views
from weightctl.controller.api import explain as explaining
from weightctl.controller.api.adoption import look_to_adopt, look_without_state
from weightctl.controller.api.orphans import orphan_list
from weightctl.controller.api.planning import TIER_DEADLINE_S
from weightctl.controller.api.supposing import Subject, Wish, owners, subject, subjects
from weightctl.controller.api.waiting import EndlessError
from weightctl.controller.core.losses import gone_keys
from weightctl.controller.core.refusals import unavailable
from weightctl.controller.core.validity import PUBLISHED
from weightctl.controller.errors import WeightError
from weightctl.controller.weightstore.layout import SCALAR
from weightctl.controller.weightstore.load import stored_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from weightctl.controller.api import documents as doc
    from weightctl.controller.api.planning import Planning
    from weightctl.controller.core.damage import DamagedReplica
    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.manifest import TensorDescriptor
    from weightctl.controller.core.observation import Member, Members
    from weightctl.controller.ports import Clock, Tier
    from weightctl.controller.store.reading import StoredState
    from weightctl.controller.weightstore.options import WeightStoreOptions


class StoredRecords:
    """Records of a state directory that is only looked at."""

    def __init__(self, stored: StoredState) -> None:
        self._stored = stored

    async def subject(self, identity: Identity) -> Subject:
        """One revision.  Raises NOT_FOUND."""
        return self._with_damage(subject(self._stored.state, identity))

    def subjects(self) -> Iterable[Subject]:
        """Every revision that is no tombstone, identity order."""
        return map(self._with_damage, subjects(self._stored.state))

    async def members(self, group_id: str) -> Members:
        """Members of a payload group, key order; blocks, in a process that does nothing else."""
        return self._stored.members(group_id)

    def known_tiers(self) -> Sequence[str]:
        """Names of all tiers that the store has ever used."""
        return tuple(self._stored.tier_epochs())

    async def groups(self) -> tuple[frozenset[str], frozenset[str]]:
        """Group ids that have an owner, and those of tombstones."""
        return owners(self._stored.state.metadata.values(), self._stored.groups())

    def _with_damage(self, found: Subject) -> Subject:
        group_id = found.record.manifest.payload_group_id
        return replace(found, damage=self._stored.damage(group_id))


async def adoptable(tiers: Sequence[Tier], clock: Clock, params: Mapping[str, Any]) -> doc.Document:
    """The dry run of `adopt` where no state directory is yet.  Raises what it meets."""
    asked: requests.Adopt = requests.check("adopt", params)
    return await look_without_state(tiers, clock, asked)


async def importable(
    tiers: Sequence[Tier], options: WeightStoreOptions, clock: Clock, params: Mapping[str, Any]
) -> doc.Document:
    """The dry run of `import` where no state directory is yet.  Raises what it meets."""
    asked: requests.Import = requests.check("import", params)
    return await importing.look_without_state(tiers, options, clock, asked)


async def survey(planning: Planning, verb: str, params: Mapping[str, Any]) -> doc.Document:
    """Do a verb of which nothing may be written.  Raises INVALID_ARGUMENT and what it meets."""
    asked = requests.check(verb, params)
    if verb == "tiers":
        return await examining.tiers(asked, planning.tiers, planning.policy)
    if verb == "plan":
        return await plan(planning, asked)
    if verb == "orphans":
        return await orphan_list(planning)
    if verb == "explain":
        return await explain(planning, asked)
    if verb == "tensors":
        return await tensors(planning, asked)
    if verb == "adopt":
        return await look_to_adopt(planning, asked)
    if verb == "import":
        return await importing.look_to_import(planning, asked)
    return await dry_run(planning, verb, asked)


async def plan(planning: Planning, asked: requests.Some) -> doc.Document:
    """Plan one revision as it stands, or all that are no tombstones."""
    if asked.identity is None:
        return await planning.plan_all()
    return await planning.plan(await planning.records.subject(asked.identity))


async def explain(planning: Planning, asked: requests.One) -> doc.Explanation:
    """What holds a revision, with what the tiers say of it."""
    found = await planning.records.subject(asked.identity)
    answer = await planning.look(found)
    rounds = await answer.forecast()
    published = found.record.availability in PUBLISHED
    if planning.running is not None and explaining.differs(found.record, rounds[0]):
        planning.running.wake(asked.identity)
    return explaining.explain(
        found.state(),
        asked.identity,
        planning.policy,
        now_ms=planning.clock.wall_ms(),
        damage=found.damage,
        rounds=rounds,
        attended=planning.attended,
        unreadable=gone_keys(answer.situation) if published else (),
        failing=planning.failing(asked.identity),
        import_idle_ms=None if planning.running is None else answer.situation.import_idle_ms,
    )


async def dry_run(planning: Planning, verb: str, asked: requests.Change) -> doc.Plan:
    """What a verb would lead to.  Raises what the verb would be refused with."""
    wish = Wish(
        verb=verb,
        expected_generation=asked.expected_generation,
        target=asked.residency() if isinstance(asked, requests.Repair) else None,
    )
    found = await planning.records.subject(asked.identity)
    try:
        return await planning.dry_run(found, wish)
    except WeightError as refusal:
        told = await planning.with_loss(asked.identity, refusal)
        if planning.attended or isinstance(told, EndlessError):
            raise told from None
        raise explaining.unattended(refusal, found.record) from None


async def tensors(planning: Planning, asked: requests.One) -> doc.TensorList:
    """The tensors of a published revision, by its manifest, which the first good replica gives."""
    found = await planning.records.subject(asked.identity)
    if not found.record.manifest.manifest_key:
        raise unavailable(found.record)
    manifest = await stored_manifest(
        found.record,
        await planning.members(found.record),
        planning.tiers,
        reports=_Known(found.damage),
        deadline_s=TIER_DEADLINE_S,
    )
    return {
        "apiVersion": views.API_VERSION,
        "kind": "TensorList",
        "items": [_tensor(item) for item in manifest.tensors],
    }


def _tensor(value: TensorDescriptor) -> doc.TensorFields:
    scalar = value.layout_fingerprint == SCALAR
    return {
        "name": value.tensor_id,
        "dtype": value.dtype,
        "shape": [] if scalar else list(value.global_shape),
        "sizeBytes": prod(value.global_shape) * value.itemsize,
    }


class _Known:
    """Damage that is known; a survey writes down nothing."""

    def __init__(self, damage: Sequence[DamagedReplica]) -> None:
        self._damage = damage

    def known(self) -> Sequence[DamagedReplica]:
        """Replicas that are not read."""
        return self._damage

    async def confirm(self, tier: Tier, member: Member) -> None:
        """Leave it to those who may write."""
