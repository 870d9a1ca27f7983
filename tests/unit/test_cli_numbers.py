"""Numbers on the command line that stand for a count of rows or a place in the log."""

import pytest

from weightctl.controller.cli.exit_codes import ExitCode
from weightctl.controller.cli.parser import Grammar


@pytest.mark.parametrize("option", ["--limit", "--from"])
@pytest.mark.parametrize("number", ["-1", "99999999999999999999", "x", "1.5"])
def test_a_count_of_entries_is_refused_before_anything_is_read(
    option: str, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        Grammar().parse(["oplog", "show", f"{option}={number}"])
    assert end.value.code == ExitCode.USAGE
    assert "a whole number from 0 to" in capsys.readouterr().err
