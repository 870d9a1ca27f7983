"""The README says what the code says: tables, commands, links, picture."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from examples.picture import drawn
from tests.support.readme_tables import README, written
from weightctl.controller.cli.parser import Grammar

TEXT = README.read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    weightctl (.*?)(?:\s+#.*)?$", TEXT, re.MULTILINE)
KILL = {"round": 1, "point": 0.3, "stage": "copying", "done": 4, "total": 15, "unit": "members"}
STEP = {
    "ok": True,
    "verified": "",
    "kills": 1,
    "killed": [KILL],
    "seconds": 1.25,
    "residency": "HOT",
}
DEMO = {
    "sizeBytes": 1024**2,
    "tensors": 3,
    "results": [
        {"name": "import", "usedBytes": {"memory": 1024**2, "nof": 0}, **STEP},
        {"name": "op-log", "usedBytes": {}, **STEP},
    ],
}


def test_the_tables_are_those_of_the_code() -> None:
    assert written(TEXT) == TEXT, "write them anew: python -m tests.support.readme_tables"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_shown_can_be_typed(command: str) -> None:
    assert Grammar().parser.parse_args(command.split()).run


def test_commands_are_shown() -> None:
    assert len(COMMANDS) >= 5


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#:]+)\)", TEXT))
def test_a_link_leads_somewhere(link: str) -> None:
    assert (README.parent / link).exists()


@pytest.mark.parametrize("target", re.findall(r"`?make ([a-z]+)", TEXT))
def test_a_make_target_that_is_shown_exists(target: str) -> None:
    assert f"\n{target}:" in Path("Makefile").read_text(encoding="utf-8")


def test_the_picture_shows_every_step_that_used_a_tier() -> None:
    picture = ET.fromstring(drawn(DEMO))
    words = {element.text for element in picture.iter() if element.text}
    assert {"import", "memory", "nof", "1.0 MiB", "HOT", "1.2 s"} <= words
    assert {"\u2715 kill -9", "copying 4 of 15"} <= words
    assert "op-log" not in words
    ET.parse(README.parent / "examples" / "demo.svg")
