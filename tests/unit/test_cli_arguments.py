"""Arguments of the command line that are refused before anything is read."""

from collections.abc import Callable

import pytest

from weightctl.controller.cli.commands import acts
from weightctl.controller.cli.demo.model import find_model
from weightctl.controller.cli.exit_codes import ExitCode
from weightctl.controller.cli.parser import Grammar
from weightctl.controller.errors import ConfigError


@pytest.mark.parametrize("option", ["--limit", "--from"])
@pytest.mark.parametrize("number", ["-1", "99999999999999999999", "x", "1.5"])
def test_a_count_of_entries_is_refused_before_anything_is_read(
    option: str, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        Grammar().parse(["oplog", "show", f"{option}={number}"])
    assert end.value.code == ExitCode.USAGE
    assert "a whole number from 0 to" in capsys.readouterr().err


@pytest.mark.parametrize("absolute", [acts._absolute, find_model])
def test_a_path_under_the_home_of_nobody_is_refused(absolute: Callable[[str], object]) -> None:
    with pytest.raises(ConfigError, match="~nobody-of-that-name"):
        absolute("~nobody-of-that-name/model")
