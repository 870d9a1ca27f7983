"""How documents are printed: tables, names, colour, questions, errors, progress."""

import io
import json
from typing import Any

import pytest
import yaml

from tests.support.virtual_time import VirtualClock
from weightctl.controller.cli import tables, units
from weightctl.controller.cli.output import Console, NeedsYesError
from weightctl.controller.cli.progress import Progress, describe
from weightctl.controller.errors import CapacityError, ErrorCode, WeightError

KEYS = {"apiVersion": "weightctl/v1", "kind": "Keys", "identity": "a/b/c@1", "namespace": "a"}
LEASES = {
    "apiVersion": "weightctl/v1",
    "kind": "LeaseList",
    "items": [
        {
            "leaseId": 7,
            "identity": "a/b/c@1",
            "holder": "h\x1b[31m",
            "expiresAtMs": 1_000,
            "live": True,
        }
    ],
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def console(output: str = "table", **changes: Any) -> Console:
    options: dict[str, Any] = {"environ": {}, "out": io.StringIO(), "err": io.StringIO()}
    options |= changes
    return Console(output=output, **options)


def printed(output: str, document: Any, **changes: Any) -> str:
    out = changes.pop("out", io.StringIO())
    console(output, out=out, **changes).document(document)
    return str(out.getvalue())


def test_each_output_form_prints_the_same_document() -> None:
    assert json.loads(printed("json", LEASES)) == LEASES
    assert yaml.safe_load(printed("yaml", LEASES)) == LEASES
    assert printed("name", LEASES) == "7\n"
    assert printed("table", LEASES).split("\n")[0].split() == [
        "LEASE",
        "IDENTITY",
        "HOLDER",
        "EXPIRES",
        "LIVE",
    ]


def test_a_table_hides_what_a_terminal_would_act_on() -> None:
    text = printed("table", LEASES)
    assert "\x1b" not in text
    assert "h\\x1b[31m" in text
    assert "1970-01-01T00:00:01Z" in text


def test_single_documents_are_printed_field_by_field() -> None:
    assert printed("table", KEYS) == "identity  a/b/c@1\n"


@pytest.mark.parametrize(
    "out, environ, colored",
    [
        (Terminal, {}, True),
        (Terminal, {"NO_COLOR": "1"}, False),
        (Terminal, {"NO_COLOR": ""}, True),
        (Terminal, {"TERM": "dumb"}, False),
        (io.StringIO, {}, False),
    ],
)
def test_colour_needs_a_terminal_and_nobody_who_forbids_it(
    out: type[io.StringIO], environ: dict[str, str], colored: bool
) -> None:
    document = {**KEYS, "availability": "READY"}
    assert ("\x1b[32mREADY" in printed("table", document, out=out(), environ=environ)) == colored


def test_an_error_has_three_parts_and_never_touches_stdout() -> None:
    out, err = io.StringIO(), io.StringIO()
    failure = WeightError(ErrorCode.BUSY, "revision x", "a lease holds it", "wait")
    assert console(out=out, err=err).failure(failure) == 5
    assert err.getvalue() == "error: BUSY: revision x\nwhy: a lease holds it\nnext: wait\n"
    assert out.getvalue() == ""


def test_with_json_output_an_error_is_a_document_on_stderr() -> None:
    err = io.StringIO()
    assert console("json", err=err).failure(CapacityError(2, 1, "tier memory", "full", "")) == 7
    assert json.loads(err.getvalue()) == {
        "apiVersion": "weightctl/v1",
        "kind": "Error",
        "code": None,
        "reason": "Capacity",
        "what": "tier memory",
        "why": "full",
        "todo": "",
        "exitCode": 7,
    }


def test_nobody_to_ask_means_that_yes_must_be_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(NeedsYesError, match="--yes"):
        console().confirm("delete?", yes=False)
    assert console().confirm("delete?", yes=True)


@pytest.mark.parametrize(
    "answer, agreed", [("y\n", True), ("Yes\n", True), ("\n", False), ("", False)]
)
def test_on_a_terminal_only_a_yes_is_a_yes(
    answer: str, agreed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    assert console(err=Terminal()).confirm("delete?", yes=False) == agreed


@pytest.mark.parametrize("terminal, seconds, lines", [(True, 1, 9), (False, 1, 0), (False, 11, 2)])
def test_progress_is_redrawn_on_a_terminal_and_logged_rarely_elsewhere(
    terminal: bool, seconds: int, lines: int
) -> None:
    clock, stream = VirtualClock(), io.StringIO()
    with Progress(stream, terminal=terminal, clock=clock) as progress:
        for done in range(100 * seconds):
            clock.jump(0.01)
            progress.update("store", done, 100 * seconds)
    text = stream.getvalue()
    assert text.count("store: ") == lines
    assert text.endswith("\r\x1b[K") == terminal


def test_a_log_line_of_progress_says_what_is_waited_for() -> None:
    clock, stream = VirtualClock(), io.StringIO()
    with Progress(stream, terminal=False, clock=clock) as progress:
        for waits in ("NoCapacity: memory is full", ""):
            clock.jump(5)
            progress.update("rehydrate", 3, 9, unit="members", waits=waits)
    first, second = stream.getvalue().splitlines()
    assert first == "rehydrate: 3 of 9 (33%), waits: NoCapacity: memory is full"
    assert second == "rehydrate: 3 of 9 (33%)"


def test_progress_tells_rate_and_time_left() -> None:
    line = describe("store", 50 * 2**20, 100 * 2**20, rate=2**20, unit="bytes")
    assert line == "store: 50 MiB of 100 MiB (50%), 1 MiB/s, 50s left"
    assert describe("evict", 3, 9, rate=0, unit="members") == "evict: 3 of 9 (33%)"


@pytest.mark.parametrize(
    "size_bytes, text",
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (90_868_376, "86.7 MiB"),
        (104_816_000, "100 MiB"),
        (1_073_723_042, "1024 MiB"),
        (2**64, "16 EiB"),
    ],
)
def test_sizes_read_well(size_bytes: int, text: str) -> None:
    assert units.size_text(size_bytes) == text


@pytest.mark.parametrize(
    "seconds, text", [(0.42, "0.42s"), (12, "12s"), (185, "3m05s"), (7800, "2h10m")]
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert units.duration_text(seconds) == text


def test_times_that_no_calendar_has_are_printed_as_numbers() -> None:
    assert units.time_text(2**90) == f"{2**90} ms"


def test_a_list_names_each_of_its_things() -> None:
    assert tables.names({"kind": "X", "items": [{"name": "memory"}, {"name": "nof"}]}) == [
        "memory",
        "nof",
    ]
