"""Takes replicas away, each with its proof.  Layer: runtime (invariants 1, 2, 3, 8).

A drop from a published revision needs, when it acts, a fresh detailed look at the replica and the
copy that justifies it: both COMPLETE, the copy the very instance that was read back right in this
epoch and not too long ago; where another copy may be shown as the same instance it is read back
for this very drop, after which only a moment is left for it to change.  The evidence is durable
before the drop; leases and the fence are checked once more after it was written.  Only the
looked-at instance is named to the tier.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from weightctl.controller.core.damage import DamagedReplica
from weightctl.controller.core.observation import Member, Members, MemberState, ReplicaDetail
from weightctl.controller.core.plan import Reason, Step, StepKind, TierView
from weightctl.controller.core.records import Availability
from weightctl.controller.errors import BusyError, require
from weightctl.controller.ports import Done, DropItem, InventoryItem, NoOp, Outcome, Retry
from weightctl.controller.runtime.dispatch import Dispatch, Pass
from weightctl.controller.store.evidence import EvidenceRow

ProveAgain = Callable[[Pass, str, Sequence[int]], Awaitable[list[int]]]
_OF_DELETED = (Reason.PAYLOAD_OF_DELETED, Reason.MANIFEST_OF_DELETED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Proof:
    """One replica to drop and the copy that stays."""

    index: int
    dropped_instance: str
    tier: str
    instance_id: str
    epoch: str
    read_s: float


class Remover:
    """DROP and QUARANTINE, and the leftovers of a group that is being deleted."""

    def __init__(self, dispatch: Dispatch, prove_again: ProveAgain) -> None:
        self._dispatch = dispatch
        self._prove_again = prove_again

    async def drop(self, work: Pass, step: Step, indexes: Sequence[int]) -> None:
        """Drop replicas of the step's source tier."""
        if step.reason in _OF_DELETED:
            await self._drop_of_deleted(work, step, indexes)
        else:
            await self._drop_proven(work, step, indexes)

    async def quarantine(self, work: Pass, step: Step, indexes: Sequence[int]) -> None:
        """Take replicas that were read back wrong out of sight; only exactly those instances."""
        damaged = {
            (row.member_key, row.instance_id)
            for row in self._damage(work, step.source)
            if row.epoch == work.seen.epochs[step.source]
        }
        keys = work.members.keys
        looked_at = await self._look(work, step.source, indexes)
        wrong = {
            index: detail
            for index, detail in looked_at.items()
            if (keys[index], detail.instance_id) in damaged
        }
        await self._remove(work, step, wrong)

    def _damage(self, work: Pass, tier: str) -> list[DamagedReplica]:
        """The replicas of the group in one tier that are known to be damaged."""
        rows = self._dispatch.store.damage.rows(work.members.group_id)
        return [row for row in rows if row.tier == tier]

    # --- published revisions ----------------------------------------------------------------------

    async def _drop_proven(self, work: Pass, step: Step, indexes: Sequence[int]) -> None:
        details = await self._look(work, step.source, indexes)
        proofs, put_off = await self._prove(work, step.source, details)
        for index in sorted(details.keys() - proofs.keys() - put_off):
            why = Retry(
                detail="the copy that stays is read first: it was not, as it lies there now"
            )
            work.tally.add(why, f"{work.members.keys[index]} ({step.source})")
        if not proofs:
            return
        rows = [self._row(work, step.source, proof) for proof in proofs.values()]
        await self._dispatch.store.evidence.record(work.record.identity, rows)
        self._require_proofs(work, step.source, proofs)
        elsewhere = {
            index
            for index, proof in proofs.items()
            if not _is_of_one_medium(work, proof.tier, step.source)
        }
        await self._remove(work, step, {index: details[index] for index in proofs}, elsewhere)

    async def _prove(
        self, work: Pass, source: str, details: Mapping[int, ReplicaDetail]
    ) -> tuple[dict[int, _Proof], set[int]]:
        """A proof for each member that has one, from fresh looks at the tiers that keep a copy.

        Also the members of which a copy could not be read back now; the tally has the reason.
        """
        proofs: dict[int, _Proof] = {}
        put_off: set[int] = set()
        for view in sorted(work.seen.views, key=_changes_unseen):
            name = view.profile.name
            wanted = [
                index
                for index in details
                if index not in proofs and view.states[index] == MemberState.VERIFIED
            ]
            if name == source or view.profile.hot or not wanted:
                continue
            oldest_s = self._oldest_s(work)
            if _changes_unseen(view) and not _is_of_one_medium(work, name, source):
                oldest_s = self._dispatch.clock.monotonic_s()
                right = await self._prove_again(work, name, wanted)
                put_off |= set(wanted).difference(right)
                wanted = right
            copies = await self._look(work, name, wanted)
            found = self._proofs_in(work, name, copies, details)
            proofs |= {i: proof for i, proof in found.items() if proof.read_s >= oldest_s}
            unproven = [index for index in wanted if index not in proofs]
            self._dispatch.observer.evidence.forget(name, work.members.group_id, unproven)
            work.tally.changed += len(unproven)  # the next pass reads them back, without a wait
            self._dispatch.note_failed(work, ((name, index, 1) for index in unproven))
        return proofs, put_off

    def _proofs_in(
        self,
        work: Pass,
        tier: str,
        copies: Mapping[int, ReplicaDetail],
        dropped: Mapping[int, ReplicaDetail],
    ) -> dict[int, _Proof]:
        """The copies in one tier that are the very instances read back, recently enough.

        One whose look contradicts its member has been changed since, whatever it was read as.
        """
        evidence, group_id = self._dispatch.observer.evidence, work.members.group_id
        oldest_s = self._oldest_s(work)
        proofs = {}
        for index, copy in copies.items():
            if not _is_as_recorded(work.members, index, copy):
                continue
            epoch = work.seen.epochs[tier]
            read_s = evidence.read_s(tier, group_id, index, epoch, copy.instance_id)
            if read_s >= oldest_s:
                proofs[index] = _Proof(
                    index=index,
                    dropped_instance=dropped[index].instance_id,
                    tier=tier,
                    instance_id=copy.instance_id,
                    epoch=epoch,
                    read_s=read_s,
                )
        return proofs

    def _oldest_s(self, work: Pass) -> float:
        return self._dispatch.clock.monotonic_s() - work.situation.policy.evidence_max_age_s

    def _require_proofs(self, work: Pass, source: str, proofs: Mapping[int, _Proof]) -> None:
        """The last-copy rule, for all members of the batch at once."""
        hot = {view.profile.name: view.profile.hot for view in work.seen.views}
        for index, proof in proofs.items():
            what = f"drop of {work.members.keys[index]} from {source}"
            require(proof.tier != source, what, "its evidence is the copy to be dropped")
            require(not hot[proof.tier], what, "its evidence lies in a hot tier")
            require(proof.instance_id and proof.epoch, what, "its evidence names no copy")

    async def _look(
        self, work: Pass, tier: str, indexes: Sequence[int]
    ) -> dict[int, ReplicaDetail]:
        """The replicas that are COMPLETE now, in the epoch of the pass; none after a change."""
        seen = await self._dispatch.observer.look(tier, work.members, indexes)
        if seen.epoch != work.seen.epochs[tier]:
            return {}
        return {
            index: seen.details[position]
            for position, index in enumerate(indexes)
            if seen.states[position] == MemberState.COMPLETE and position in seen.details
        }

    def _row(self, work: Pass, source: str, proof: _Proof) -> EvidenceRow:
        clock = self._dispatch.clock
        now_ms, age_s = clock.wall_ms(), clock.monotonic_s() - proof.read_s
        return EvidenceRow(
            member_key=work.members.keys[proof.index],
            dropped_tier=source,
            dropped_instance=proof.dropped_instance,
            evidence_tier=proof.tier,
            evidence_instance=proof.instance_id,
            evidence_sha256=work.members.digest(proof.index),
            evidence_epoch=proof.epoch,
            verified_at_ms=now_ms - int(age_s * 1000),
            operation_id=work.record.operation_id,
            at_ms=now_ms,
        )

    # --- deleted revisions ------------------------------------------------------------------------

    async def _drop_of_deleted(self, work: Pass, step: Step, indexes: Sequence[int]) -> None:
        self._require_deleting(work)
        await self._remove(work, step, await self._look(work, step.source, indexes))

    def _require_deleting(self, work: Pass) -> None:
        require(
            work.record.availability is Availability.DELETING,
            f"removal of every copy of {work.record.identity}",
            f"it is {work.record.availability.name}",
        )

    async def sweep(self, work: Pass, tier: str, items: Sequence[InventoryItem]) -> None:
        """Remove leftovers of a group that is being deleted: quarantined, partial, or unknown."""
        self._require_deleting(work)
        position = {key: index for index, key in enumerate(work.members.keys)}
        batch = [
            DropItem(
                member=self._leftover(work, item, position),
                instance_id=item.instance_id,
                whole=True,
            )
            for item in items
        ]
        outcomes = await self._drop_batch(work, tier, batch)
        for item, outcome in zip(items, outcomes, strict=True):
            work.tally.add(outcome, f"{item.key} ({tier})")

    def _leftover(self, work: Pass, item: InventoryItem, position: Mapping[str, int]) -> Member:
        index = position.get(item.key)
        if index is not None:
            return work.members.member(index)
        group_id = work.members.group_id
        return Member(group_id=group_id, key=item.key, size_bytes=item.size_bytes, sha256=bytes(32))

    # --- acting -----------------------------------------------------------------------------------

    async def _remove(
        self,
        work: Pass,
        step: Step,
        details: Mapping[int, ReplicaDetail],
        elsewhere: Collection[int] = (),
    ) -> None:
        """elsewhere: of which another medium has a proven copy."""
        if not details:
            return
        indexes = list(details)
        whole = step.reason in _OF_DELETED
        batch = [
            DropItem(
                member=member,
                instance_id=details[index].instance_id,
                whole=whole,
                elsewhere=index in elsewhere,
            )
            for index, member in zip(indexes, work.members.select(indexes), strict=True)
        ]
        quarantine = step.kind is StepKind.QUARANTINE
        outcomes = await self._drop_batch(work, step.source, batch, quarantine=quarantine)
        work.count(step, indexes, outcomes)
        gone = [
            index
            for index, outcome in zip(indexes, outcomes, strict=True)
            if isinstance(outcome, Done | NoOp)
        ]
        observer, group_id = self._dispatch.observer, work.members.group_id
        observer.evidence.forget(step.source, group_id, indexes)
        observer.gate.expect(step.source, group_id, gone, MemberState.ABSENT)
        observer.capacity_changed(step.source)
        removed = {(work.members.keys[index], details[index].instance_id) for index in gone}
        await self._dispatch.store.damage.forget(
            group_id,
            [
                row
                for row in self._damage(work, step.source)
                if (row.member_key, row.instance_id) in removed
            ],
        )

    async def _drop_batch(
        self, work: Pass, tier_name: str, batch: Sequence[DropItem], *, quarantine: bool = False
    ) -> list[Outcome]:
        tier = self._dispatch.tier(tier_name)

        async def call() -> Sequence[Outcome]:
            self._check_leases(work)
            if quarantine:
                return await tier.quarantine(batch, work.fence)
            return await tier.drop(batch, work.fence)

        ticket = self._dispatch.ticket(work, (tier_name,), 0)
        return await self._dispatch.send(work, ticket, len(batch), call)

    def _check_leases(self, work: Pass) -> None:
        leases = self._dispatch.store.leases(identity=work.record.identity)
        if leases:
            raise BusyError(
                min(lease.expires_at_ms for lease in leases),
                f"removal from {work.record.identity}",
                f"{len(leases)} live leases",
                "wait until they are released or dead",
            )


def _changes_unseen(view: TierView) -> bool:
    return view.profile.capabilities.instance_is_reused


def _is_of_one_medium(work: Pass, tier: str, other: str) -> bool:
    """Whether both tiers show replicas of the same objects: none can be changed alone."""
    media = {view.profile.name: view.profile.medium for view in work.seen.views}
    return media[tier] != "" and media[tier] == media[other]


def _is_as_recorded(members: Members, index: int, copy: ReplicaDetail) -> bool:
    """Whether size and digest, as far as the tier tells it, are those of the member."""
    if copy.size_bytes != members.sizes_bytes[index]:
        return False
    return copy.sha256 is None or copy.sha256 == members.digest(index)
