"""What an import would do, found out without doing any of it.  Layer: weightstore.

Takes the decisions of the import from the same functions: the draft, the begin, the comparison with
a revision that exists, the choice of tiers.  Tiers are asked for their room and for what lies under
the keys.  The source is hashed only where there is a content to compare with.  Invariant: nothing
is written anywhere, and what nobody answered is told as such.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anyio import to_thread

from weightctl.controller.core.lifecycle import prepare_begin
from weightctl.controller.core.observation import MemberState
from weightctl.controller.core.records import Availability
from weightctl.controller.core.refusals import conflict
from weightctl.controller.core.state import WeightState
from weightctl.controller.errors import UnknownOutcomeError, WeightError
from weightctl.controller.ports import NOT_SET_UP, SET_UP_BY_USE
from weightctl.controller.weightstore.adoptable import Obstacle
from weightctl.controller.weightstore.digests import digest_payloads
from weightctl.controller.weightstore.drafting import Draft, check_same, draft, require_text
from weightctl.controller.weightstore.layout import created_at
from weightctl.controller.weightstore.placement import Standing, by_default, no_place, standing
from weightctl.controller.weightstore.primitives import as_members
from weightctl.controller.weightstore.readers import opened
from weightctl.controller.weightstore.strangers import conflicts, is_shown
from weightctl.controller.weightstore.upload import Upload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weightctl.controller.core.identity import Identity
    from weightctl.controller.core.observation import Members
    from weightctl.controller.core.records import RevisionMetadata
    from weightctl.controller.ports import Tier
    from weightctl.controller.weightstore.options import WeightStoreOptions
    from weightctl.controller.weightstore.source import ModelSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What an import would do; with obstacles, what it would be refused with, gravest first."""

    identity: Identity
    source: str
    draft: Draft
    record: RevisionMetadata | None
    """As it is now; None where the identity is free."""
    members: Members
    """In key order; UNKNOWN_DIGEST where the source was not read."""
    read_bytes: int
    standings: Sequence[Standing]
    """Of every tier that an import could use, in order of preference, hot ones first."""
    targets: Sequence[Standing]
    """Those that it would write to."""
    obstacles: Sequence[Obstacle]

    @property
    def same(self) -> bool:
        """Whether the revision is published with just this content: there is nothing to do."""
        ready = self.record is not None and self.record.availability is Availability.READY
        return ready and not self.obstacles


class Previewing:
    """One preview; use once.

    record, held: the revision as it is recorded, None and no matter where there is none.
    """

    def __init__(
        self,
        tiers: Sequence[Tier],
        options: WeightStoreOptions,
        record: RevisionMetadata | None,
        held: Members | None,
    ) -> None:
        self._tiers = tiers
        self._options = options
        self._record = record
        self._held = held

    async def run(self, identity: Identity, path: str, now_ms: int) -> Preview:
        """Look.  Raises what the import would be refused with before it asks for a record."""
        require_text(identity)
        async with opened(path) as source:
            made = await draft(identity, source, self._tiers, None, self._options)
            refused = self._begin(identity, made, now_ms)
            if refused is None and self._record is not None:
                refused, members = await self._compared(source, made, self._record)
            else:
                members = made.members
            standings = await self._standings(made.members)
            targets, obstacles = self._targets(standings, made.members.group_id, refused)
            if members is made.members and any(is_shown(one.seen) for one in targets if one.seen):
                members = await self._hashed(source, made)
            obstacles += [one for found in targets for one in _strange(found, members)]
        return Preview(
            identity=identity,
            source=source.path,
            draft=made,
            record=self._record,
            members=members,
            read_bytes=0 if members is made.members else made.layout.logical_bytes,
            standings=standings,
            targets=targets,
            obstacles=obstacles,
        )

    # --- records ---

    def _begin(self, identity: Identity, made: Draft, now_ms: int) -> WeightError | None:
        state = WeightState()
        if self._record is not None:
            state.put_metadata(self._record)
        try:
            prepare_begin(
                state,
                identity=identity,
                expected_payload_count=len(made.layout.payloads),
                expected_logical_bytes=made.layout.logical_bytes,
                now_ms=now_ms,
            )
        except WeightError as error:
            return error
        return None

    async def _compared(
        self, source: ModelSource, made: Draft, record: RevisionMetadata
    ) -> tuple[WeightError | None, Members]:
        """Why the content is not the one that is recorded, and the members with their digests."""
        manifest = replace(made.manifest, created_at=created_at(record.created_at_ms))
        digests = await self._digests(source, made)
        upload = await to_thread.run_sync(Upload, record, made.layout, digests, manifest)
        members = as_members(upload.group_id, upload.members)
        held = self._held
        try:
            if held is not None and record.availability is Availability.READY:
                check_same(record, held, upload)
            elif held is not None:
                _check_registered(record.identity, held, members)
        except WeightError as error:
            return error, members
        return None, members

    async def _digests(self, source: ModelSource, made: Draft) -> list[bytes]:
        payloads, workers = made.layout.payloads, self._options.workers
        found = await digest_payloads(source, payloads, workers, lambda _: None)
        await to_thread.run_sync(source.check_unchanged)
        return found

    async def _hashed(self, source: ModelSource, made: Draft) -> Members:
        return made.hashed(await self._digests(source, made))

    # --- tiers ---

    async def _standings(self, members: Members) -> list[Standing]:
        return [
            await standing(tier, members, self._options, detail=range(len(members)))
            for _, found in by_default(self._tiers)
            for tier in found
        ]

    def _targets(
        self, standings: Sequence[Standing], group_id: str, refused: WeightError | None
    ) -> tuple[list[Standing], list[Obstacle]]:
        """The tiers that would be written to, and why nothing would be, or there is none."""
        if refused is not None:
            return [], [Obstacle(key="", tier="", error=refused)]
        if self._record is not None and self._record.availability is Availability.READY:
            return [], []
        targets: list[Standing] = []
        obstacles: list[Obstacle] = []
        for kind, hot in (("hot", True), ("persistent cold", False)):
            asked = [found for found in standings if found.tier.profile.hot is hot]
            fits = [found for found in asked if found.takes or sets_itself_up(found)]
            if fits:
                targets.append(fits[0])
            else:
                error = no_place(asked, kind, group_id)
                obstacles.append(Obstacle(key="", tier="", error=error))
        return targets, obstacles


def sets_itself_up(found: Standing) -> bool:
    """Whether a tier cannot tell its room only because nobody has used it yet."""
    error = found.error
    if error is None or not error.todo.endswith(SET_UP_BY_USE):
        return False
    return NOT_SET_UP in f"{error.what}: {error.why}"


def _strange(found: Standing, members: Members) -> list[Obstacle]:
    """What in a tier would stop the import: what is not told, and other content under a key."""
    seen, name = found.seen, found.tier.profile.name
    if seen is None:
        return []
    if MemberState.UNKNOWN in seen.states:
        silent = UnknownOutcomeError(
            f"tier {name} does not say what it holds",
            seen.problem or "it gave no answer",
            "see what `weightctl doctor` says of it; an import would wait for it, then give up",
        )
        return [Obstacle(key="", tier=name, error=silent)]
    return [
        Obstacle(key=member.key, tier=name, error=error)
        for member, error in conflicts(found.tier, seen, members)
    ]


def _check_registered(identity: Identity, held: Members, members: Members) -> None:
    """What an interrupted import has registered stays as it is.  Raises CONFLICT."""
    wanted = {key: members.member(index) for index, key in enumerate(members.keys)}
    for index, key in enumerate(held.keys):
        if wanted.get(key, held.member(index)) != held.member(index):
            raise conflict(
                f"member {key} of {identity}",
                "it is registered with other content or in another group",
                "abort this import; other content needs a new weight generation",
            )
