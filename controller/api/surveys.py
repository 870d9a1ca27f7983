"""Verbs that only look: plans, explanations, dry runs, the tier list.  Layer: api.

The same functions answer for an open application and for a state directory that nobody holds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from weightctl.controller.api import explain as explaining
from weightctl.controller.api import requests
from weightctl.controller.api.planning import tier_list
from weightctl.controller.api.supposing import Subject, Wish, subject, subjects

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from weightctl.controller.api import documents as doc
    from weightctl.controller.api.planning import Planning
    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.observation import Members
    from weightctl.controller.store.reading import StoredState


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

    def _with_damage(self, found: Subject) -> Subject:
        group_id = found.record.manifest.payload_group_id
        return replace(found, damage=self._stored.damage(group_id))


async def survey(planning: Planning, verb: str, params: Mapping[str, Any]) -> doc.Document:
    """Do a verb of which nothing may be written.  Raises INVALID_ARGUMENT and what it meets."""
    asked = requests.check(verb, params)
    if verb == "tiers":
        return await tier_list(planning.tiers)
    if verb == "plan":
        return await plan(planning, asked)
    if verb == "explain":
        return await explain(planning, asked)
    return await dry_run(planning, verb, asked)


async def plan(planning: Planning, asked: requests.Some) -> doc.Document:
    """Plan one revision as it stands, or all that are no tombstones."""
    if asked.identity is None:
        return await planning.plan_all()
    return await planning.plan(await planning.records.subject(asked.identity))


async def explain(planning: Planning, asked: requests.One) -> doc.Explanation:
    """What holds a revision, with what the tiers say of it."""
    found = await planning.records.subject(asked.identity)
    return explaining.explain(
        found.state(),
        asked.identity,
        planning.policy,
        now_ms=planning.clock.wall_ms(),
        damage=found.damage,
        plan=(await planning.as_it_stands(found))[0],
    )


async def dry_run(planning: Planning, verb: str, asked: requests.Change) -> doc.Plan:
    """What a verb would lead to.  Raises what the verb would be refused with."""
    wish = Wish(
        verb=verb,
        expected_generation=asked.expected_generation,
        target=asked.residency() if isinstance(asked, requests.Repair) else None,
    )
    return await planning.dry_run(await planning.records.subject(asked.identity), wish)
