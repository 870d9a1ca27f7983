"""When an observation may be trusted for destructive work.  Layer: runtime (invariant 8).

A tier whose epoch changed may have forgotten what it held, and a group of which many members change
verdict at once may be seen through a fault.  In both cases the group counts as unsettled until two
consistent observations lie at least `settle_s` apart.  The epoch last trusted of each tier is made
durable by the caller, so that a restart does not take a new epoch for the old one.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from weightctl.controller.core.aggregate import readable_mask
from weightctl.controller.core.observation import MemberState, TierObservation
from weightctl.controller.core.policy import Policy
from weightctl.controller.ports import Clock

GROUPS_MAX = 20_000

_CERTAIN = bytes(state not in (MemberState.UNKNOWN, MemberState.PARTIAL) for state in range(256))
_VERDICT = bytes(2 * (state == MemberState.COMPLETE) + sure for state, sure in enumerate(_CERTAIN))
"""Readable, not readable, or uncertain."""


class _Seen:
    """What is trusted of one group in one tier, and what waits to be trusted."""

    __slots__ = ("candidate", "epoch", "since_s", "states")

    def __init__(self, epoch: str, states: bytes) -> None:
        self.epoch = epoch
        self.states = states
        self.candidate: tuple[str, bytes] | None = None
        self.since_s = 0.0


def _changed_count(old: bytes, new: bytes) -> int:
    """Members whose verdict, readable or not, differs; uncertain states do not count."""
    if old == new:
        return 0
    certain = int.from_bytes(new.translate(_CERTAIN), "little")
    differs = int.from_bytes(readable_mask(old), "little")
    differs ^= int.from_bytes(readable_mask(new), "little")
    return (differs & certain).bit_count()


def _updated(old: bytes, new: bytes) -> bytes:
    """`new`, with the old state where the new one is uncertain."""
    if MemberState.UNKNOWN not in new and MemberState.PARTIAL not in new:
        return new
    return bytes(
        then if state in (MemberState.UNKNOWN, MemberState.PARTIAL) else state
        for then, state in zip(old, new, strict=True)
    )


def _is_trusted(seen: _Seen, observation: TierObservation, policy: Policy) -> bool:
    if seen.epoch != observation.epoch:
        return False
    changed = _changed_count(seen.states, observation.states)
    return changed <= policy.mass_change_share * len(seen.states)


class SettleGate:
    """Decides, per tier and group, whether destructive work may rely on what was seen."""

    def __init__(self, clock: Clock, *, groups_max: int = GROUPS_MAX) -> None:
        self._clock = clock
        self._groups_max = groups_max
        self._epochs: dict[str, str] = {}
        self._unsaved: dict[str, str] = {}
        self._seen: OrderedDict[tuple[str, str], _Seen] = OrderedDict()
        self._changed: set[str] = set()
        """Tiers whose epoch changed in this process: groups not seen since are not trusted."""

    def restore(self, epochs: Mapping[str, str]) -> None:
        """Take over the durable epochs; call before the first observation."""
        self._epochs.update(epochs)

    def unsaved(self) -> dict[str, str]:
        """Epochs that are trusted and not yet durable, by tier."""
        return dict(self._unsaved)

    def saved(self, tier: str, epoch: str) -> None:
        """That epoch is durable now."""
        if self._unsaved.get(tier) == epoch:
            del self._unsaved[tier]

    def judge(
        self,
        tier: str,
        group_id: str,
        observation: TierObservation,
        policy: Policy,
        *,
        asked_s: float,
    ) -> float | None:
        """None when the group is settled in this tier, else the seconds until it may be.

        An unanswered observation neither settles nor unsettles: its states are UNKNOWN anyway.
        asked_s: monotonic time of the question.  Other tiers may answer much later, and only what
        lies between an earlier judgement and this question is time for which the look was the same.
        """
        seen = self._seen.get((tier, group_id))
        if not observation.epoch:
            return policy.settle_s if seen is not None and seen.candidate is not None else None
        self._learn_epoch(tier, observation.epoch)
        if seen is None or len(seen.states) != len(observation.states):
            seen = self._first_sight(tier, group_id, observation)
        else:
            self._seen.move_to_end((tier, group_id))
        if seen.candidate is None and _is_trusted(seen, observation, policy):
            seen.states = _updated(seen.states, observation.states)
            return None
        return self._settle(tier, seen, observation, policy, asked_s)

    def expect(self, tier: str, group_id: str, indexes: Iterable[int], state: MemberState) -> None:
        """What our own primitive made of these members; seeing it is no surprise."""
        seen = self._seen.get((tier, group_id))
        if seen is None:
            return
        states = bytearray(seen.states)
        candidate = bytearray(seen.candidate[1]) if seen.candidate else None
        for index in indexes:
            states[index] = state
            if candidate is not None:
                candidate[index] = state
        seen.states = bytes(states)
        if seen.candidate and candidate is not None:
            seen.candidate = (seen.candidate[0], bytes(candidate))

    def forget_group(self, group_id: str, tiers: Iterable[str]) -> None:
        """Drop what is known of a group."""
        for tier in tiers:
            self._seen.pop((tier, group_id), None)

    def _learn_epoch(self, tier: str, epoch: str) -> None:
        known = self._epochs.get(tier)
        if known is None:  # never seen before: there is nothing that it could have forgotten
            self._trust_epoch(tier, epoch)
        elif known != epoch:
            self._changed.add(tier)

    def _trust_epoch(self, tier: str, epoch: str) -> None:
        if self._epochs.get(tier) != epoch:
            self._epochs[tier] = self._unsaved[tier] = epoch

    def _first_sight(self, tier: str, group_id: str, observation: TierObservation) -> _Seen:
        epoch = "" if tier in self._changed else observation.epoch
        seen = self._seen[tier, group_id] = _Seen(epoch, observation.states)
        if len(self._seen) > self._groups_max:
            self._seen.popitem(last=False)
        return seen

    def _settle(
        self,
        tier: str,
        seen: _Seen,
        observation: TierObservation,
        policy: Policy,
        asked_s: float,
    ) -> float | None:
        now_s = self._clock.monotonic_s()
        candidate = seen.candidate
        consistent = (
            candidate is not None
            and candidate[0] == observation.epoch
            and candidate[1].translate(_VERDICT) == observation.states.translate(_VERDICT)
        )
        if not consistent:
            seen.candidate = (observation.epoch, observation.states)
            seen.since_s = now_s
            return policy.settle_s
        settled_s = seen.since_s + policy.settle_s
        if asked_s < settled_s:
            return max(settled_s - now_s, 0.0)
        seen.epoch = observation.epoch
        seen.states = _updated(seen.states, observation.states)
        seen.candidate = None
        self._trust_epoch(tier, observation.epoch)
        return None
