"""Evidence and the settle gate: what may be relied on."""

import pytest

from tests.support.virtual_time import VirtualClock
from weightctl.controller.core.observation import MemberState, TierObservation
from weightctl.controller.core.policy import Policy
from weightctl.controller.runtime.evidence import EvidenceBook
from weightctl.controller.runtime.settling import SettleGate

LETTERS = dict(zip("?-pcvx", MemberState, strict=True))
POLICY = Policy(settle_s=10.0, mass_change_share=0.25)


def states(word: str) -> bytes:
    return bytes(LETTERS[letter] for letter in word)


def word(raw: bytes) -> str:
    return "".join("?-pcvx"[state] for state in raw)


def good(*indexes: int, instance: str = "i") -> dict[int, str]:
    return dict.fromkeys(indexes, instance)


def test_evidence_marks_only_complete_members() -> None:
    book = EvidenceBook(VirtualClock())
    book.note("t", "g", 6, "e", good(0, 1, 2, 3))
    assert word(book.merge("t", "g", states("c-p?cc"), "e", 60)) == "v-p?cc"


@pytest.mark.parametrize(
    "epoch, count", [("other", 2), ("e", 3), ("", 2)], ids=["epoch", "size", "no answer"]
)
def test_evidence_ends_with_its_epoch_and_its_group(epoch: str, count: int) -> None:
    book = EvidenceBook(VirtualClock())
    book.note("t", "g", 2, "e", good(0, 1))
    assert word(book.merge("t", "g", states("c" * count), epoch, 60)) == "c" * count


def test_evidence_ages_and_a_newer_reading_renews_it() -> None:
    clock = VirtualClock()
    book = EvidenceBook(clock)
    book.note("t", "g", 3, "e", good(0, 1))
    clock.jump(50)
    book.note("t", "g", 3, "e", good(1))
    clock.jump(20)
    assert word(book.merge("t", "g", states("ccc"), "e", 60)) == "cvc"


def test_proof_needs_the_very_instance_and_epoch() -> None:
    clock = VirtualClock()
    book = EvidenceBook(clock)
    book.note("t", "g", 1, "e", good(0, instance="i1"))
    assert book.read_s("t", "g", 0, "e", "i1") == clock.monotonic_s()
    for epoch, instance in (("e", "i2"), ("f", "i1")):
        assert book.read_s("t", "g", 0, epoch, instance) == float("-inf")
    assert book.read_s("other", "g", 0, "e", "i1") == float("-inf")
    book.forget("t", "g", [0])
    assert book.read_s("t", "g", 0, "e", "i1") == float("-inf")


def test_the_book_is_bounded_and_forgets_the_least_recently_used() -> None:
    book = EvidenceBook(VirtualClock(), members_max=10)
    for number in range(5):
        book.note("t", f"g{number}", 4, "e", good(0))
    assert [n for n in range(5) if book.merge("t", f"g{n}", states("cccc"), "e", 60)[0] == 4] == [
        3,
        4,
    ]


class Gate:
    """A gate with its clock, asked about one group."""

    def __init__(self, **epochs: str) -> None:
        self.clock = VirtualClock()
        self.gate = SettleGate(self.clock)
        self.gate.restore(epochs)

    def sees(self, letters: str, epoch: str = "1", group: str = "g") -> bool:
        """Whether this observation is settled."""
        seen = TierObservation(states=states(letters), epoch=epoch)
        return self.judges(seen, group, asked_s=self.clock.monotonic_s()) is None

    def judges(self, seen: TierObservation, group: str = "g", *, asked_s: float) -> float | None:
        """What the gate says now about an answer to a question of then."""
        return self.gate.judge("t", group, seen, POLICY, asked_s=asked_s)


def test_a_tier_never_seen_before_is_trusted_and_its_epoch_is_to_be_kept() -> None:
    gate = Gate()
    assert gate.sees("cccc")
    assert gate.gate.unsaved() == {"t": "1"}
    gate.gate.saved("t", "1")
    assert gate.gate.unsaved() == {}


def test_an_answer_that_waited_for_other_tiers_is_as_old_as_its_question() -> None:
    gate = Gate(t="1")
    assert gate.sees("cccc")
    assert not gate.sees("----", "2")
    asked_s = gate.clock.monotonic_s()
    gate.clock.jump(11)  # another tier hangs meanwhile
    gone = TierObservation(states=states("----"), epoch="2")
    assert gate.judges(gone, asked_s=asked_s) == 0.0, "asked at once, so nothing has settled"
    assert gate.judges(gone, asked_s=gate.clock.monotonic_s()) is None


def test_a_new_epoch_settles_after_two_consistent_looks_far_enough_apart() -> None:
    gate = Gate(t="1")
    assert gate.sees("cccc")
    assert not gate.sees("----", "2")
    gate.clock.jump(9)
    assert not gate.sees("----", "2")
    gate.clock.jump(2)
    assert gate.sees("----", "2")
    assert gate.gate.unsaved() == {"t": "2"}


def test_a_look_that_differs_starts_the_settling_anew() -> None:
    gate = Gate(t="1")
    assert not gate.sees("----", "2")
    gate.clock.jump(11)
    assert not gate.sees("---c", "2")
    gate.clock.jump(11)
    assert not gate.sees("--?c", "2"), "an uncertain member is no confirmation"
    gate.clock.jump(11)
    assert not gate.sees("---c", "2")
    gate.clock.jump(11)
    assert gate.sees("---c", "2")


def test_a_change_of_epoch_before_the_restart_is_noticed_after_it() -> None:
    gate = Gate(t="1")
    assert not gate.sees("cccc", "2")


def test_groups_that_were_not_seen_since_the_change_must_settle_too() -> None:
    gate = Gate(t="1")
    gate.sees("cc", "2")
    gate.clock.jump(11)
    assert gate.sees("cc", "2")
    assert not gate.sees("cc", "2", group="h")


@pytest.mark.parametrize(
    "before, after, settled",
    [
        ("cccc", "ccc-", True),
        ("cccc", "cc--", False),
        ("----", "cc--", False),
        ("cccc", "????", True),
        ("cccc", "pppp", True),
        ("cccc", "cc??", True),
    ],
)
def test_only_a_mass_change_of_certain_verdicts_unsettles(
    before: str, after: str, settled: bool
) -> None:
    gate = Gate()
    assert gate.sees(before)
    assert gate.sees(after) is settled


def test_what_was_seen_before_silence_counts_after_it() -> None:
    gate = Gate()
    assert gate.sees("cccc")
    assert gate.sees("????")
    assert not gate.sees("----")


def test_our_own_primitives_are_no_surprise() -> None:
    gate = Gate()
    assert gate.sees("cccc")
    gate.gate.expect("t", "g", range(4), MemberState.ABSENT)
    assert gate.sees("----")


def test_an_unanswered_look_neither_settles_nor_unsettles() -> None:
    gate = Gate()
    assert gate.sees("cccc")
    assert gate.sees("????", epoch="")
    gate.sees("----")
    assert not gate.sees("????", epoch="")
    gate.clock.jump(11)
    assert gate.sees("----")
