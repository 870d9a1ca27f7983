"""Options of a tier: what is unknown or wrong is refused by name."""

from collections.abc import Callable

import pytest

from weightctl.adapters.shared.options import TierOptions
from weightctl.controller.errors import ConfigError

KNOWN = ("path", "capacity_bytes", "deadline_s", "workers")


def options(**given: object) -> TierOptions:
    return TierOptions("disk", given, KNOWN)


@pytest.mark.parametrize(
    "given, hint",
    [
        ({"pth": "x"}, "did you mean 'path'?"),
        ({"capacity": 1}, "did you mean 'capacity_bytes'?"),
        ({"zzz": 1}, "known: path, capacity_bytes, deadline_s, workers"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_known(
    given: dict[str, object], hint: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        TierOptions("disk", given, KNOWN)
    assert raised.value.todo == hint
    assert "'disk'" in raised.value.what


@pytest.mark.parametrize(
    "given, size_bytes",
    [
        (None, None),
        (1, 1),
        ("17", 17),
        ("20GiB", 20 * 1024**3),
        ("1.5 MiB", 1536 * 1024),
        ("2GB", 2 * 10**9),
        ("4k", 4000),
        ("1 tib", 1024**4),
    ],
)
def test_a_size_is_a_number_or_a_text_with_a_unit(given: object, size_bytes: int | None) -> None:
    found = options() if given is None else options(capacity_bytes=given)
    assert found.size_bytes("capacity_bytes") == size_bytes


@pytest.mark.parametrize(
    "read",
    [
        *(
            lambda value=value: options(capacity_bytes=value).size_bytes("capacity_bytes")
            for value in (0, -1, 1.5, True, "", "big", "-1GB", "GiB")
        ),
        *(lambda value=value: options(path=value).text("path") for value in ("", 1, "a\0b", b"x")),
        lambda: options().text("path"),
        *(
            lambda value=value: options(deadline_s=value).seconds("deadline_s", 1.0)
            for value in (0, -1, float("nan"), float("inf"), "1", True)
        ),
        *(
            lambda value=value: options(workers=value).count("workers", 1)
            for value in (0, -1, 1.0, "1", True)
        ),
    ],
)
def test_a_wrong_value_is_refused_with_the_names_of_tier_and_option(
    read: Callable[[], object],
) -> None:
    with pytest.raises(ConfigError, match=r"tier 'disk': option '\w+' cannot be used"):
        read()


def test_defaults_hold_where_nothing_is_given() -> None:
    assert options().text("path", "here") == "here"
    assert options().seconds("deadline_s", 2.5) == 2.5
    assert options().count("workers", 3) == 3
    assert options(deadline_s=4).seconds("deadline_s", 2.5) == 4.0
