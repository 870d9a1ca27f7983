"""SIGSTOP for longer than every deadline: who was stopped must notice what it has missed."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.faults.processes.courses import COURSES
from tests.faults.processes.ledger import check_readable
from tests.faults.processes.rounds import PASSING, Rounds
from tests.faults.processes.sidecar import Asking, Sidecar, sidecar
from weightctl.controller.api.client import RemoteError
from weightctl.controller.store.lock import LOCK_NAME, holder_of
from weightctl.controller.store.reading import read_state

DEADLINE_S = 1.0
LONGER_S = 2.0
SHORT_MS = 500


def stopped_in(one: Sidecar, point: str, verb: str, **params: object) -> Asking:
    """Ask until the process has stopped itself at the failpoint: a short lease may end before."""
    assert one.child is not None
    stat = Path(f"/proc/{one.child.pid}/stat")

    def stopped() -> bool:
        return stat.read_text().rpartition(")")[2].split()[0] == "T"

    while True:
        one.arm(f"{point}=stop")
        asking = Asking(one, verb, params)
        asking.start()
        one.wait(lambda asked=asking: stopped() or not asked.is_alive(), f"stop at {point}")
        one.disarm()
        if stopped():
            return asking
        assert asking.refusal is not None
        assert asking.refusal.code in PASSING


@pytest.mark.parametrize(
    "course, point",
    [
        ("import", "tier.local_disk.store.after"),
        ("repair", "tier.dfs.piece"),
        ("repair", "tier.nof.store.before"),
        ("evict", "tier.memory.drop.before"),
        ("rehydrate", "journal.append.after"),
        ("delete", "tier.nof.drop.before"),
    ],
)
def test_an_operation_goes_on_after_a_stop_longer_than_every_deadline(
    rounds: Rounds, course: str, point: str
) -> None:
    one = rounds.sidecar
    life = rounds.led_up_to(course)
    asking = stopped_in(one, point, COURSES[course].verb, **COURSES[course].params(life))
    assert one.child is not None
    assert holder_of(one.state_dir) == one.child.pid, "a stopped process holds its directory"
    second = one.run("run")
    assert second.code == 12
    assert f"process {one.child.pid}" in second.err
    assert one.run("list", "lab/model").code == 0, "questions are answered beside it"
    time.sleep(LONGER_S)
    one.send(signal.SIGCONT)
    asking.ended()
    assert not asking.lost
    assert one.alive
    rounds.lead(life, COURSES[course])
    rounds.settle(life)


def test_a_verb_does_not_wait_for_a_stopped_controller_beyond_its_timeout(rounds: Rounds) -> None:
    one = rounds.sidecar
    life = rounds.led_up_to("evict")
    one.send(signal.SIGSTOP)
    ended = one.run("evict", life.identity, "--wait", "--timeout", "1s")
    one.send(signal.SIGCONT)
    assert ended.code == 1
    assert "its answer was lost" in ended.err
    rounds.lead(life, COURSES["evict"])
    rounds.settle(life)


def test_a_lease_that_died_while_its_keeper_was_stopped_holds_nothing(rounds: Rounds) -> None:
    one = rounds.sidecar
    life = rounds.led_up_to("lease acquire")
    lease = one.ask("lease acquire", identity=life.identity, holder="reader", ttl_ms=SHORT_MS)
    one.send(signal.SIGSTOP)
    time.sleep(LONGER_S)
    one.send(signal.SIGCONT)
    with pytest.raises(RemoteError) as caught:
        one.ask("lease renew", lease_id=lease["leaseId"], tenant_id="default", ttl_ms=60_000)
    assert caught.value.code in {"LEASE_EXPIRED", "NOT_FOUND"}
    rounds.lead(life, COURSES["delete"])
    rounds.settle(life)


def test_a_load_whose_lease_died_during_a_stop_gives_nothing_out(tmp_path: Path) -> None:
    with sidecar(tmp_path, ("memory", "dfs"), lease_ms=SHORT_MS) as one:
        one.start()
        rounds = Rounds(one)
        life = rounds.led_up_to("evict")
        target = tmp_path / "out"
        asking = stopped_in(
            one,
            "tier.memory.open.after:2",
            "load",
            identity=life.identity,
            folder=str(target),
            holder="reader",
        )
        time.sleep(LONGER_S)
        one.send(signal.SIGCONT)
        refusal = asking.ended().refusal
        assert refusal is not None
        assert refusal.code == "LEASE_EXPIRED"
        assert not list(target.glob("*"))
        rounds.lead(life, COURSES["evict"])
        rounds.settle(life)


def test_a_reader_that_is_killed_in_a_load_leaves_neither_lease_nor_file(tmp_path: Path) -> None:
    """The client dies; the controller, whose lease it was, gives it back and removes the draft."""
    with sidecar(tmp_path, ("memory", "dfs")) as one:
        one.start()
        rounds = Rounds(one)
        life = rounds.led_up_to("evict")
        target = tmp_path / "out"
        one.arm("tier.memory.open.after:2=stop")
        words = one.command("load", life.identity, str(target))
        client = one.popen(words)
        stat = Path(f"/proc/{one.child.pid if one.child else 0}/stat")
        one.wait(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "stop in a load")
        one.disarm()
        client.kill()
        client.wait()
        one.send(signal.SIGCONT)

        def leases() -> int:
            with read_state(one.state_dir) as stored:
                return len(stored.state.leases)

        one.wait(lambda: leases() == 0 and not list(target.glob("*")), "the load is not given up")
        rounds.lead(life, COURSES["evict"])
        rounds.settle(life)


def test_who_was_stopped_while_its_lock_was_taken_away_changes_nothing(tmp_path: Path) -> None:
    """Somebody removes the file of a lock that seems stale, and starts a second controller."""
    with sidecar(tmp_path, ("memory", "local_disk")) as one:
        one.start()
        rounds = Rounds(one)
        life = rounds.led_up_to("evict")
        asking = stopped_in(
            one, "tier.memory.observe.before:2", "evict", **COURSES["evict"].params(life)
        )
        first = one.child
        assert first is not None
        try:
            (one.state_dir / LOCK_NAME).unlink()
            one.start()  # a second one, which goes on with what is recorded
            rounds.lead(life, COURSES["evict"])
            rounds.settle(life)
            term = rounds.ledger.term
            asked = one.log()
            os.kill(first.pid, signal.SIGCONT)
            assert first.wait(120) == 9, one.log()[-2000:]
            asking.ended()
            assert "has opened the state directory" in one.log()[len(asked) :]
            rounds.lead(life, COURSES["rehydrate"])
            rounds.settle(life)
        finally:
            first.kill()
            first.wait()
        with read_state(one.state_dir) as stored:
            assert stored.term == term
            check_readable(one, stored)
