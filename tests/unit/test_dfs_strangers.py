"""When a partial file of another host counts as dead."""

from weightctl.adapters.dfs.strangers import REMEMBERED_MAX, Strangers
from weightctl.adapters.dfs.writers import Stranger


def stranger(instance: str, *, index: int = 0, size: int = 1, changed_ns: int = 1) -> Stranger:
    return Stranger(index=index, instance_id=instance, size_bytes=size, changed_ns=changed_ns)


def test_it_is_dead_only_when_it_was_seen_unchanged_a_grace_apart() -> None:
    strangers = Strangers(grace_s=10.0)
    assert strangers.see([stranger("a")], 0.0) == set()
    assert strangers.see([stranger("a")], 9.9) == set()
    assert strangers.see([stranger("a", size=2)], 10.0) == set()  # it grew
    assert strangers.see([stranger("a", size=2, changed_ns=2)], 20.0) == set()  # it was touched
    assert strangers.see([stranger("a", size=2, changed_ns=2)], 29.9) == set()
    assert strangers.see([stranger("a", size=2, changed_ns=2)], 30.0) == {0}
    assert strangers.still() == {"a"}


def test_a_member_is_free_only_when_all_its_partial_files_are_dead() -> None:
    strangers = Strangers(grace_s=10.0)
    strangers.see([stranger("a"), stranger("c", index=1)], 0.0)
    seen = [stranger("a"), stranger("b"), stranger("c", index=1)]
    assert strangers.see(seen, 10.0) == {1}
    assert strangers.see(seen, 20.0) == {0, 1}


def test_time_that_passes_unseen_proves_nothing() -> None:
    strangers = Strangers(grace_s=10.0)
    strangers.see([stranger("a")], 0.0)
    assert strangers.still() == set()
    strangers.see([stranger("b")], 1000.0)
    assert strangers.still() == set()


def test_memory_is_bounded_and_forgetting_only_prolongs_a_grace() -> None:
    strangers = Strangers(grace_s=10.0)
    strangers.see([stranger("first")], 0.0)
    strangers.see((stranger(str(number)) for number in range(REMEMBERED_MAX)), 1.0)
    assert len(strangers._seen) == REMEMBERED_MAX
    assert strangers.see([stranger("first")], 20.0) == set()
