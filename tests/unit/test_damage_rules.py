"""A verdict on a damaged replica counts against the very copy that was read, and no other."""

from array import array

import pytest

from weightctl.controller.core.damage import DamagedReplica, mark_damaged, suspects
from weightctl.controller.core.observation import Members, ReplicaDetail, TierObservation

LETTERS = "?-pcvx"
KEYS = ["a", "b", "ä", "\ufffd", "\U0001f600"]  # in the order of their UTF-8 bytes


def damaged(key: str = "b", *, instance: str = "i", epoch: str = "e") -> DamagedReplica:
    return DamagedReplica(
        member_key=key, tier="t", instance_id=instance, epoch=epoch, found_sha256=b"", at_ms=1
    )


def states(word: str) -> bytes:
    return bytes(LETTERS.index(letter) for letter in word)


@pytest.mark.parametrize(
    "seen, instance, epoch, word, refuted",
    [
        ("ccc", "i", "e", "cxc", False),
        ("ccc", "other", "e", "ccc", True),
        ("ccc", "i", "other", "ccc", True),
        ("ccc", None, "e", "c?c", False),
        ("c-c", None, "e", "c-c", False),
        ("cpc", None, "e", "cpc", False),
        ("???", None, "", "???", False),
    ],
    ids=[
        "that copy",
        "another copy",
        "another epoch",
        "a copy without a name",
        "no copy",
        "a copy being written",
        "no answer",
    ],
)
def test_only_the_copy_that_was_read_is_corrupt(
    seen: str, instance: str | None, epoch: str, word: str, *, refuted: bool
) -> None:
    details = {} if instance is None else {1: ReplicaDetail(instance_id=instance, size_bytes=1)}
    observation = TierObservation(states=states(seen), epoch=epoch, details=details)
    marked, gone = mark_damaged(states(seen), observation, {1: damaged()})
    assert "".join(LETTERS[state] for state in marked) == word
    assert gone == ([damaged()] if refuted else [])


def test_a_copy_that_was_read_back_right_earlier_is_corrupt_all_the_same() -> None:
    details = {0: ReplicaDetail(instance_id="i", size_bytes=1)}
    observation = TierObservation(states=states("c"), epoch="e", details=details)
    marked, _ = mark_damaged(states("v"), observation, {0: damaged()})
    assert marked == states("x")


def test_suspects_are_found_by_the_order_of_their_bytes_and_strangers_are_left_out() -> None:
    members = Members(
        group_id="g",
        keys=KEYS,
        sizes_bytes=array("Q", [1] * len(KEYS)),
        sha256=bytes(32 * len(KEYS)),
        data_types=bytes([1] * len(KEYS)),
    )
    rows = [damaged(key) for key in (*KEYS, "0", "c", "\U0001f601")]
    found = suspects(rows, members)
    assert found == {"t": {index: damaged(key) for index, key in enumerate(KEYS)}}
