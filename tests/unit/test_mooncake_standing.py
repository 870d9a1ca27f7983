"""What a Mooncake connection tells of its Master: by whom it was told what, and when."""

from tests.support.virtual_time import VirtualClock
from weightctl.adapters.mooncake.client.reads import Reads
from weightctl.adapters.mooncake.master.admin import LEASE_FREE, Health
from weightctl.adapters.mooncake.standing import NUMBERS, Standing

FIRST = Health(address="a:1", role="leader", view="7")
SECOND = Health(address="b:1", role="leader", view="8")
ASKED = dict.fromkeys(LEASE_FREE, 3)
READS = Reads(VirtualClock(), 10.0, 1024)


def standing() -> tuple[VirtualClock, Standing]:
    clock = VirtualClock()
    return clock, Standing(clock)


def test_every_number_is_told_from_the_start() -> None:
    _, one = standing()
    report = one.report(ASKED, READS)
    assert set(report.numbers) == set(NUMBERS)
    assert report.numbers["http_batch_query_keys"] == 3
    assert (report.numbers["serving"], report.numbers["outages"]) == (0, 0)


def test_an_outage_counts_from_the_start_and_by_the_clock_that_only_goes_on() -> None:
    clock, one = standing()
    one.is_away("a:1: refused")
    clock._monotonic_s += 5
    report = one.report(ASKED, READS)
    assert report.state == "no Master has served for 5 s: a:1: refused"
    assert report.numbers["outage_seconds"] == 5
    one.serves(FIRST)
    clock._monotonic_s += 100
    report = one.report(ASKED, READS)
    assert report.state == "leader a:1 serves, view 7"
    assert (report.numbers["outage_seconds"], report.numbers["outage_seconds_total"]) == (0, 5)
    one.is_away("a:1: timed out")
    one.is_away("a:1: refused")
    clock.jump_wall(3600)
    clock._monotonic_s += 2
    report = one.report(ASKED, READS)
    assert report.state == "no Master has served for 2 s; a:1 served last: a:1: refused"
    assert (report.numbers["outages"], report.numbers["outage_seconds_total"]) == (1, 7)


def test_a_take_over_is_a_change_of_leader_and_its_view_is_told() -> None:
    _, one = standing()
    for health in (FIRST, FIRST, SECOND):
        one.serves(health)
    one.begins_epoch()
    numbers = one.report(ASKED, READS).numbers
    assert (numbers["leader_changes"], numbers["view_version"]) == (1, 8)
    assert numbers["epoch_changes"] == 1


def test_codes_are_counted_by_what_they_mean_wherever_they_stand_in_an_answer() -> None:
    _, one = standing()
    one.answered("begin", -705)
    one.answered("remove", [0, -706, -706])
    one.answered("move", ((5, 6), -600))
    one.answered("digest_in_memory", (-901, b""))
    one.answered("write", 4096)
    numbers = one.report(ASKED, READS).numbers
    assert numbers["code_exists"] == 1
    assert numbers["code_leased"] == 2
    assert numbers["code_refused"] == 1
    assert numbers["code_unknown"] == 1
    assert sum(count for name, count in numbers.items() if name.startswith("code_")) == 5
    assert sum(count for name, count in numbers.items() if name.startswith("client_")) == 5
