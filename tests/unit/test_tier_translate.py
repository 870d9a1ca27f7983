"""The border of a tier: each errno and error has one meaning for the loop."""

import errno
import os

import pytest

from weightctl.adapters.shared.translate import error_from_os, outcome_from_error
from weightctl.controller import errors
from weightctl.controller.ports import (
    Busy,
    Corrupt,
    Fenced,
    NoCapacity,
    Outcome,
    Permanent,
    Retry,
    Unknown,
)


@pytest.mark.parametrize(
    "number, error, outcome",
    [
        (errno.ENOSPC, errors.CapacityError, NoCapacity),
        (errno.EDQUOT, errors.CapacityError, NoCapacity),
        (errno.EIO, errors.TransientError, Retry),
        (errno.ESTALE, errors.TransientError, Retry),
        (errno.ETIMEDOUT, errors.TransientError, Retry),
        (errno.EMFILE, errors.TransientError, Retry),
        (errno.ENOENT, errors.TransientError, Retry),
        (errno.ENXIO, errors.TransientError, Retry),
        (9999, errors.TransientError, Retry),
        (errno.EROFS, errors.TerminalError, Permanent),
        (errno.EACCES, errors.TerminalError, Permanent),
        (errno.ELOOP, errors.TerminalError, Permanent),
    ],
)
def test_an_errno_has_one_meaning(
    number: int, error: type[errors.ReconcileError], outcome: type[Outcome]
) -> None:
    raised = OSError(number, os.strerror(number), "/mnt/file")
    translated = error_from_os(raised, "storing 'key'")
    assert type(translated) is error
    assert translated.what == "storing 'key'"
    assert translated.todo
    assert type(outcome_from_error(raised)) is outcome


@pytest.mark.parametrize(
    "error, outcome",
    [
        (errors.CapacityError(5, 3, "w"), NoCapacity(needed_bytes=5, free_bytes=3)),
        (errors.BusyError(17, "w", "y"), Busy(until_ms=17, detail="w: y")),
        (errors.ThrottledError(1.5, "w"), Retry(after_s=1.5, detail="w")),
        (errors.IntegrityError("w"), Corrupt(expected=b"e", got=b"")),
        (errors.FencedError("w"), Fenced(detail="w")),
        (errors.TerminalError("w"), Permanent(detail="w")),
        (errors.UnknownOutcomeError("w"), Unknown(detail="w")),
        (errors.TransientError("w", "y", "t"), Retry(detail="w: y: t")),
        (errors.SourceError("w"), Permanent(detail="w")),
    ],
)
def test_an_error_has_one_outcome(error: Exception, outcome: Outcome) -> None:
    assert outcome_from_error(error, expected_sha256=b"e") == outcome


@pytest.mark.parametrize("error", [ValueError("bug"), errors.InvariantViolationError("broken")])
def test_what_is_no_fault_of_the_medium_is_raised_again(error: Exception) -> None:
    with pytest.raises(type(error)):
        outcome_from_error(error)
