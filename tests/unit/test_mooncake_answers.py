"""How much of an answer of a Mooncake Master is read."""

import pytest

from tests.fuzz.on_mooncake import _parse_http
from weightctl.adapters.mooncake.admin import ANSWER_BYTES_MAX
from weightctl.controller.errors import TransientError


def test_an_answer_that_is_larger_than_its_question_allows_is_not_read_to_its_end() -> None:
    with pytest.raises(TransientError, match=f"over {ANSWER_BYTES_MAX} bytes"):
        _parse_http(b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (ANSWER_BYTES_MAX + 100))
