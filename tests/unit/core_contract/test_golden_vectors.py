"""Every golden vector about identities, digests, lease keys and page tokens, byte for byte."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from weightctl.controller.core.identity import (
    COMPONENT_BYTES_MAX,
    Identity,
    identity_digest,
    is_valid_component,
    lease_record_key,
    manifest_key,
    page_token,
    parse_page_token,
    payload_group_id,
    payload_keys_digest,
    payload_prefix,
    revision_record_key,
    text_bytes,
)

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data" / "golden_vectors.json").read_text("utf-8")
)


def named(section: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "vector", VECTORS[section], ids=lambda vector: vector.get("name", "")
    )


VALID = [vector for vector in VECTORS["identities"] if vector["identity_valid"]]
INVALID = [vector for vector in VECTORS["identities"] if not vector["identity_valid"]]


@pytest.mark.parametrize("vector", VALID, ids=lambda vector: vector["name"])
def test_identity_vector(vector: dict[str, Any]) -> None:
    identity = Identity(**vector["identity"])
    assert identity.problem() is None
    assert manifest_key(identity) == vector["manifest_key"]
    assert len(manifest_key(identity).encode()) == vector["manifest_key_bytes"]
    assert is_valid_component(manifest_key(identity)) is vector["manifest_key_is_valid_component"]
    assert identity_digest(identity) == vector["identity_sha256"]
    assert payload_group_id(identity) == vector["payload_group_id"]
    assert revision_record_key(identity) == vector["revision_record_key"]
    assert payload_prefix(identity) == vector["manifest_key"][: -len("manifest")] + "payload/"
    preimage = vector["identity_preimage_hex"]
    if preimage is not None:
        assert hashlib.sha256(bytes.fromhex(preimage)).hexdigest() == vector["identity_sha256"]


@pytest.mark.parametrize("vector", INVALID, ids=lambda vector: vector["name"])
def test_invalid_identity_vector(vector: dict[str, Any]) -> None:
    identity = Identity(**vector["identity"])
    assert identity.problem() is not None
    assert identity_digest(identity) == ""
    assert payload_group_id(identity) == ""
    assert revision_record_key(identity) == ""


def test_both_kinds_of_identity_vectors_are_there() -> None:
    assert (len(VALID), len(INVALID)) == (15, 11)


@named("payload_key_digests")
def test_payload_keys_vector(vector: dict[str, Any]) -> None:
    assert payload_keys_digest(vector["keys"]) == vector["sha256"]
    assert sorted(vector["keys"], key=text_bytes) == vector["sorted_keys"]


@pytest.mark.parametrize("vector", VECTORS["lease_record_keys"])
def test_lease_key_vector(vector: dict[str, Any]) -> None:
    assert lease_record_key(vector["lease_id"]) == vector["record_key"]


@pytest.mark.parametrize("vector", VECTORS["page_tokens"])
def test_page_token_vector(vector: dict[str, Any]) -> None:
    if not vector["valid"]:
        assert parse_page_token(vector["token"]) is None
        return
    revision, generation = vector["revision"], vector["generation"]
    assert parse_page_token(vector["token"]) == (revision, generation)
    row = Identity(namespace="n", resource_id="r", revision=revision, weight_generation=generation)
    assert page_token(row) == vector["token"]


DIGESTS = {
    "none": ([], "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
    "hundred": (
        [f"payload-{number}" for number in range(100)],
        "8fa9bb5ebceb97b27a6deb17de361fbe57a6c9f490c8d996ccc9842834cb45a9",
    ),
}


@pytest.mark.parametrize("keys, digest", DIGESTS.values(), ids=DIGESTS.keys())
def test_payload_keys_digest_of_the_contract(keys: list[str], digest: str) -> None:
    assert payload_keys_digest(keys) == digest


def test_duplicate_keys_and_key_borders_count() -> None:
    assert payload_keys_digest(["a", "a"]).startswith("4cf0df3b")
    assert payload_keys_digest(["a", "a"]).endswith("60c3")
    assert payload_keys_digest(["ab", "c"]).startswith("e45c872a")
    assert payload_keys_digest(["ab", "c"]).endswith("42fe")


@pytest.mark.parametrize(
    "token", ["r\x1f007", "r\x1f-1", "r\x1f1 ", "\x1f1", "", "r\x1f१", "r\x1f" + "9" * 5000]
)
def test_only_plain_decimal_digits_make_a_page_token(token: str) -> None:
    expected = ("r", 7) if token == "r\x1f007" else None
    assert parse_page_token(token) == expected


def test_a_component_is_measured_in_bytes() -> None:
    assert is_valid_component("é" * (COMPONENT_BYTES_MAX // 2))
    assert not is_valid_component("é" * (COMPONENT_BYTES_MAX // 2) + "x")
