"""Which copy on a host's disk counts, rule by rule: whose it is, and whether its host answers."""

import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from weightctl.adapters.conformance.suite.material import member_of
from weightctl.adapters.mooncake.master.admin import Segment
from weightctl.adapters.mooncake.master.replicas import Entry, InMemory, OnLocalDisk
from weightctl.adapters.mooncake.ownership.book import NOBODY, Row
from weightctl.adapters.mooncake.proof.cold import doubts, learn, note_sole, sole_copy, was_read

MEMBER = member_of("k", b"content")
ROW = Row(
    key="k",
    group_id=MEMBER.group_id,
    size_bytes=MEMBER.size_bytes,
    sha256=MEMBER.sha256,
    token="t",
    owner="o",
    keeper="A",
    keeper_host="host A",
)
UP, DOWN = "up", "down"
"""Where a host answers, and where none does."""


class Rows(dict[str, Row]):
    """A book without a file."""

    def put(self, rows: Iterable[Row]) -> None:
        self.update({row.key: row for row in rows})


class Look(NamedTuple):
    """What is seen of an object: the hosts that have it in memory, and on disk."""

    memory: str
    disk: str
    just_put: bool = False


@dataclass
class Known:
    """A connection as far as it is used here; hosts A and B are mounted, C is being unmounted."""

    answers_at: str
    silent_at: str
    book: Rows = field(default_factory=Rows)
    sole: dict[str, str] = field(default_factory=dict)
    disk: None = None
    settled: dict[str, frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.options = SimpleNamespace(deadline_s=60.0)
        self.context = SimpleNamespace(read_only=False)
        self.segments = self

    async def listed(self) -> list[Segment]:
        return [segment("A", "OK"), segment("B", "OK"), segment("C", "GRACEFULLY_UNMOUNTING")]

    def knows(self, row: Row | None) -> None:
        if row is not None:
            self.book.put([row])

    def copies(self, *places: tuple[str, str], size_bytes: int = 7) -> list[OnLocalDisk]:
        """Copies by (place, UP or DOWN)."""
        at = {UP: self.answers_at, DOWN: self.silent_at}
        return [
            OnLocalDisk(size_bytes=size_bytes, place=place, endpoint=at[answers])
            for place, answers in places
        ]


@pytest.fixture
def known() -> Iterator[Any]:
    with ExitStack() as stack:
        up = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        refuses = stack.enter_context(socket.socket())  # its port is taken, and nobody listens
        refuses.bind(("127.0.0.1", 0))
        answers, refused = (f"127.0.0.1:{one.getsockname()[1]}" for one in (up, refuses))
        yield Known(answers, refused)


def segment(host: str, status: str) -> Segment:
    return Segment(
        name=f"host {host}",
        segment_id=host,
        client_id=host,
        endpoint=f"{host}:1",
        status=status,
        used_bytes=0,
        capacity_bytes=1,
    )


def in_memory_at(*hosts: str) -> list[InMemory]:
    return [InMemory(size_bytes=7, endpoint=f"{host}:1", address=1) for host in hosts]


@pytest.mark.parametrize(
    "row, memory, places, why",
    [
        pytest.param(ROW, "A", [("A", UP)], "", id="the-keepers-counts"),
        pytest.param(ROW, "A", [], "no complete cold replica", id="there-is-none"),
        pytest.param(ROW, "A", [("B", UP)], "may be an older file", id="not-the-keepers"),
        pytest.param(
            ROW, "A", [("A", UP), ("B", UP)], "may be an older file", id="one-is-not-the-keepers"
        ),
        pytest.param(None, "A", [("A", UP)], "may be an older file", id="of-what-nobody-knows"),
        pytest.param(ROW, "A", [("A", DOWN)], "does not answer: host A", id="its-host-is-silent"),
        pytest.param(ROW, "A", [("A", DOWN), ("A", UP)], "", id="one-of-its-hosts-answers"),
        pytest.param(None, "", [("B", UP)], "", id="what-alone-is-left-can-be-read"),
        pytest.param(None, "", [("B", DOWN)], "does not answer: host B", id="unless-nobody-does"),
        pytest.param(
            None, "", [("A", UP), ("B", UP)], "may be an older file", id="either-may-be-read"
        ),
    ],
)
async def test_a_disk_copy_counts_when_it_is_of_this_put_and_its_host_answers(
    known: Any, row: Row | None, memory: str, places: Sequence[tuple[str, str]], why: str
) -> None:
    known.knows(row)
    entry = Entry(ok=True, memory=in_memory_at(*memory), local_disk=known.copies(*places))
    told = (await doubts(known, [MEMBER], {"k": entry})).get("k", "")
    assert why in told
    assert bool(why) == bool(told)


@pytest.mark.parametrize("memory", ["A", ""], ids=["beside-memory", "alone"])
async def test_a_disk_copy_of_another_size_never_counts(known: Any, memory: str) -> None:
    known.knows(ROW)
    copies = known.copies(("A", UP), size_bytes=6)
    entry = Entry(ok=True, memory=in_memory_at(*memory), local_disk=copies)
    assert "has 6 bytes and not 7" in (await doubts(known, [MEMBER], {"k": entry}))["k"]


async def test_what_the_master_does_not_answer_for_has_no_copy(known: Any) -> None:
    known.knows(ROW)
    assert "k" in await doubts(known, [MEMBER], {})
    assert "k" in await doubts(known, [MEMBER], {"k": Entry(ok=False, error="STRANGE")})


FRESH = replace(ROW, keeper="", keeper_host="")
ONLY_PUT = replace(FRESH, keeper="A")
RESTARTED = replace(ROW, keeper="old")
FOUND = replace(FRESH, owner="")
OTHER = replace(FRESH, sha256=bytes(32))


@pytest.mark.parametrize(
    "row, look, noted",
    [
        pytest.param(FRESH, Look("A", "", just_put=True), ("A", ""), id="just-put"),
        pytest.param(FRESH, Look("A", ""), ("", ""), id="later-it-may-have-moved"),
        pytest.param(FRESH, Look("A", "A"), ("A", "host A"), id="one-host-has-both"),
        pytest.param(FRESH, Look("A", "B"), ("", ""), id="each-has-one"),
        pytest.param(FRESH, Look("A", "AB"), ("", ""), id="one-more-file-came-back"),
        pytest.param(FRESH, Look("AB", "A"), ("", ""), id="it-lies-on-two-hosts"),
        pytest.param(FRESH, Look("AB", "", just_put=True), ("", ""), id="just-put-on-two"),
        pytest.param(FRESH, Look("C", "C"), ("", ""), id="its-host-is-being-unmounted"),
        pytest.param(ROW, Look("B", "B"), ("A", "host A"), id="who-is-known-stays"),
        pytest.param(ONLY_PUT, Look("A", ""), ("A", ""), id="it-is-not-on-disk-yet"),
        pytest.param(ONLY_PUT, Look("", "A"), ("A", "host A"), id="now-it-is"),
        pytest.param(RESTARTED, Look("B", "A"), ("A", "host A"), id="its-host-is-back"),
        pytest.param(RESTARTED, Look("B", "B"), ("old", "host A"), id="another-is-not-it"),
        pytest.param(RESTARTED, Look("", "oA"), ("A", "host A"), id="an-unknown-one-is-not-it"),
        pytest.param(FOUND, Look("A", "", just_put=True), ("", ""), id="not-put-here"),
        pytest.param(OTHER, Look("A", "A", just_put=True), ("", ""), id="another-object"),
    ],
)
async def test_whose_disk_keeps_an_object_is_noted_when_a_look_tells_it(
    known: Any, row: Row, look: Look, noted: tuple[str, str]
) -> None:
    known.knows(row)
    copies = known.copies(*((place, UP) for place in look.disk))
    entry = Entry(ok=True, memory=in_memory_at(*look.memory), local_disk=copies)
    await learn(known, [MEMBER], {"k": entry}, just_put=look.just_put)
    assert (known.book["k"].keeper, known.book["k"].keeper_host) == noted


async def test_a_file_that_a_host_tells_of_which_had_just_come_is_never_taken_for_what_was_put(
    known: Any,
) -> None:
    known.knows(FRESH)
    known.settled = {"k": frozenset("B")}
    memory = in_memory_at("A")
    await learn(known, [MEMBER], {"k": Entry(ok=True, memory=memory)}, just_put=True)
    assert known.book["k"].keeper == NOBODY
    entry = Entry(ok=True, memory=memory, local_disk=known.copies(("A", UP)))
    assert "may be an older file" in (await doubts(known, [MEMBER], {"k": entry}))["k"]
    assert known.book["k"].keeper == NOBODY


async def test_a_dry_run_notes_nothing(known: Any) -> None:
    known.knows(FRESH)
    known.context.read_only = True
    entry = Entry(ok=True, memory=in_memory_at("A"), local_disk=known.copies(("A", UP)))
    await learn(known, [MEMBER], {"k": entry})
    assert known.book.get("k") == FRESH


@pytest.mark.parametrize(
    "row, looks, keeper",
    [
        pytest.param(FRESH, [("", "B"), ("", "B")], "B", id="its-only-copy-was-read"),
        pytest.param(ROW, [("", "B"), ("", "B")], "B", id="whoever-was-the-keeper"),
        pytest.param(FRESH, [("", "B"), ("A", "B"), ("A", "B")], "B", id="it-was-promoted"),
        pytest.param(
            ROW, [("", "B"), ("A", "B"), ("A", "B")], "A", id="the-keeper-may-have-given-it"
        ),
        pytest.param(FRESH, [("A", "B"), ("A", "B")], "", id="memory-was-read"),
        pytest.param(FRESH, [("", "B"), ("A", "AB"), ("A", "B")], "", id="another-was-seen"),
        pytest.param(FRESH, [("", "B"), ("", "AB")], "", id="another-came-meanwhile"),
        pytest.param(FRESH, [("", "B"), ("", "A")], "", id="it-is-another-one-now"),
        pytest.param(OTHER, [("", "B"), ("", "B")], "", id="of-another-object"),
    ],
)
async def test_right_bytes_that_came_from_the_only_copy_prove_it(
    known: Any, row: Row, looks: Sequence[tuple[str, str]], keeper: str
) -> None:
    """The last look is the one after the reading, and the one before it is the other last."""
    known.knows(row)
    seen = [
        Entry(
            ok=True,
            memory=in_memory_at(*memory),
            local_disk=known.copies(*((place, UP) for place in places)),
        )
        for memory, places in looks
    ]
    for entry in seen[:-1]:
        note_sole(known, {"k": entry})
    await was_read(known, MEMBER, seen[-2], seen[-1])
    assert known.book["k"].keeper == keeper
    assert not known.sole, "it proves one reading only"


@pytest.mark.parametrize(
    "more, is_sole",
    [
        ({}, True),
        ({"memory": in_memory_at("A")}, False),
        ({"disk": [object()]}, False),
        ({"nof": in_memory_at("A")}, False),
    ],
    ids=["alone", "memory", "disk", "nof"],
)
def test_a_reader_is_certain_to_get_a_copy_only_where_there_is_no_other(
    known: Any, more: dict[str, Any], is_sole: bool
) -> None:
    (copy,) = known.copies(("A", UP))
    assert (sole_copy(Entry(ok=True, local_disk=[copy], **more)) is copy) == is_sole
    assert sole_copy(Entry(ok=True, local_disk=[copy, copy], **more)) is None
