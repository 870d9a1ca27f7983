"""Options, names, and the signature of the two requests that obstore has no call for."""

from pathlib import Path

import pytest
from weightctl_objectstore import create, names, options
from weightctl_objectstore.names import Listing, Replica
from weightctl_objectstore.options import PREFIX_BYTES_MAX

from weightctl.adapters.conformance.suite.material import context
from weightctl.adapters.conformance.suite.replicas import HOSTILE_KEYS
from weightctl.controller.core.identity import text_bytes
from weightctl.controller.errors import ConfigError

GOOD = {"bucket": "my-weights"}
SHA = bytes(range(32))


@pytest.mark.parametrize(
    "given, said",
    [
        ({}, "option 'bucket' cannot be used"),
        ({**GOOD, "prefix": "/x"}, "option 'prefix' cannot be used"),
        ({**GOOD, "prefix": "a/../b"}, "option 'prefix' cannot be used"),
        ({**GOOD, "prefix": "x" * 101}, "option 'prefix' cannot be used"),
        ({"bucket": "No"}, "option 'bucket' cannot be used"),
        ({**GOOD, "endpoint": "localhost:9000"}, "option 'endpoint' cannot be used"),
        ({**GOOD, "endpoint": "http://h/path"}, "option 'endpoint' cannot be used"),
        ({**GOOD, "endpoint": "http://user:secret@h"}, "keys are in the environment"),
        ({**GOOD, "deadline_s": 0}, "option 'deadline_s' cannot be used"),
        ({**GOOD, "capacity_bytes": -1}, "option 'capacity_bytes' cannot be used"),
        ({**GOOD, "adopt": "yes"}, "option 'adopt' cannot be used"),
        ({**GOOD, "endpiont": "x"}, "did you mean 'endpoint'?"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(
    given: dict[str, object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as refused:
        create("cold", given, context(tmp_path))
    assert said in str(refused.value)
    assert "'cold'" in str(refused.value)
    assert "secret@" not in str(refused.value)


def test_keys_come_from_the_environment_and_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_ACCESS_KEY_ID", "key-of-other")
    monkeypatch.setenv("OTHER_SECRET_ACCESS_KEY", "secret-of-other")
    parsed = options.parse("cold", {**GOOD, "env_prefix": "OTHER"})
    assert parsed.credentials is not None
    assert (parsed.credentials.key_id, parsed.credentials.secret) == (
        "key-of-other",
        "secret-of-other",
    )
    assert "of-other" not in repr(parsed)
    assert options.parse("cold", {**GOOD, "env_prefix": "NOBODY"}).credentials is None


@pytest.mark.parametrize("text", [*HOSTILE_KEYS, "", "weight:" + "5a" * 32, "~", "\udcff"])
def test_a_text_is_one_safe_part_of_a_name_and_comes_back(text: str) -> None:
    part = names.encode(text)
    assert part.isascii()
    assert part.strip(".")
    assert "/" not in part
    assert len(part) <= names.PART_BYTES_MAX
    if names.decode(part) is None:
        assert names.name_of_text(part) == f"names/{part[1:]}"
    else:
        assert names.decode(part) == text
    assert names.text_of(text_bytes(text)) == text


def test_different_texts_have_different_parts() -> None:
    texts = {*HOSTILE_KEYS, "", "~", "=7E", "%7E", "=", "%3D", "~" + "0" * 64}
    assert len({names.encode(text) for text in texts}) == len(texts)


def test_the_longest_name_is_one_that_s3_allows() -> None:
    longest = "/".join(
        [
            "p" * PREFIX_BYTES_MAX,
            "replicas",
            "g" * names.PART_BYTES_MAX,
            "k" * names.PART_BYTES_MAX,
            names.new_instance(SHA, "0" * 16) + names.QUARANTINED,
        ]
    )
    assert len(longest) <= 1024


def test_a_listing_takes_only_the_tiers_own_names() -> None:
    place = ("group", "key")
    first, second = (names.new_instance(SHA, token * 16) for token in "ab")
    found = Listing()
    found.add(
        [
            (names.name_of(*place, first), 7),
            (names.name_of(*place, second), 9),
            (names.name_of(*place, first) + names.QUARANTINED, 0),
            (names.name_of(*place, "notes.txt"), 1),
            (names.name_of(*place, first) + ".more", 1),
            (f"replicas/group/{first}", 1),
            (f"other/group/key/{first}", 1),
        ]
    )
    assert found.at(place) == [Replica(first, 7, hidden=True), Replica(second, 9, hidden=False)]
    assert found.seen(place, SHA) == Replica(second, 9, hidden=False)
    assert found.used_bytes() == 16
    assert list(found.places()) == [place]
