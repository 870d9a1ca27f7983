"""Rules of identities over arbitrary byte strings: printing, ordering, digests, page tokens."""

from hypothesis import given
from hypothesis import strategies as st

from weightctl.controller.core.identity import (
    U64_MAX,
    Identity,
    format_identity,
    is_valid_component,
    is_valid_tenant,
    manifest_key,
    page_token,
    parse_identity,
    parse_page_token,
    payload_group_id,
    payload_keys_digest,
    percent_encode,
    text_bytes,
)
from weightctl.controller.errors import ErrorCode, WeightError

SPECIAL = st.sampled_from(["%", "/", ":", "@", " ", "%2F", "..", "é", "é", "🚀", "\udcff", "~"])
BYTES = st.binary(min_size=1, max_size=12).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
PARTS = st.lists(st.one_of(SPECIAL, BYTES), min_size=1, max_size=4).map("".join)
TEXTS = PARTS.map(
    lambda text: text_bytes(text).decode("utf-8", "surrogateescape")  # one text for one byte string
)
COMPONENTS = TEXTS.filter(is_valid_component)
GENERATIONS = st.integers(1, 30) | st.integers(U64_MAX - 2, U64_MAX)
IDENTITIES = st.builds(
    Identity,
    tenant_id=st.just("default") | TEXTS.filter(is_valid_tenant),
    namespace=COMPONENTS,
    resource_id=COMPONENTS,
    revision=COMPONENTS,
    weight_generation=GENERATIONS,
)


@given(IDENTITIES)
def test_what_is_printed_is_parsed_to_the_same(identity: Identity) -> None:
    printed = format_identity(identity)
    assert printed.isascii()
    assert printed.isprintable()
    assert parse_identity(printed) == identity


@given(st.text(max_size=40) | st.lists(SPECIAL, max_size=6).map("".join))
def test_parsing_any_text_gives_a_valid_identity_or_invalid_argument(text: str) -> None:
    for candidate in (text, f"{text}/r/v@7", f"{text}:n/r/v@7", f"n/r/v@{text}"):
        try:
            identity = parse_identity(candidate)
        except WeightError as error:
            if error.code is not ErrorCode.INVALID_ARGUMENT:
                raise
        else:
            assert identity.problem() is None
            assert parse_identity(format_identity(identity)) == identity


@given(PARTS)
def test_text_is_valid_only_as_the_one_text_of_its_bytes(text: str) -> None:
    raw = text_bytes(text)
    canonical = raw.decode("utf-8", "surrogateescape") == text
    plain = 1 <= len(raw) <= 1024 and all(byte >= 0x20 and byte != 0x7F for byte in raw)
    assert is_valid_component(text) is (canonical and plain)


@given(IDENTITIES, IDENTITIES)
def test_different_identities_differ_in_every_derived_name(one: Identity, two: Identity) -> None:
    same = one == two
    assert (one.sort_key() == two.sort_key()) is same
    assert (payload_group_id(one) == payload_group_id(two)) is same
    if one.tenant_id == two.tenant_id:
        assert (manifest_key(one) == manifest_key(two)) is same


@given(IDENTITIES, IDENTITIES)
def test_order_is_by_bytes_then_by_number(one: Identity, two: Identity) -> None:
    for name in ("tenant_id", "namespace", "resource_id", "revision"):
        left, right = text_bytes(getattr(one, name)), text_bytes(getattr(two, name))
        if left != right:
            assert (one.sort_key() < two.sort_key()) is (left < right)
            return
    assert (one.sort_key() < two.sort_key()) is (one.weight_generation < two.weight_generation)


@given(IDENTITIES)
def test_a_page_token_is_read_back(identity: Identity) -> None:
    assert parse_page_token(page_token(identity)) == (
        identity.revision,
        identity.weight_generation,
    )


@given(TEXTS)
def test_percent_encoding_keeps_only_unreserved_characters(text: str) -> None:
    encoded = percent_encode(text)
    unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~"
    expected = "".join(
        chr(byte) if chr(byte) in unreserved else f"%{byte:02X}" for byte in text_bytes(text)
    )
    assert encoded == expected


@given(st.lists(TEXTS, max_size=6))
def test_the_keys_digest_knows_no_order_but_every_key(keys: list[str]) -> None:
    digest = payload_keys_digest(keys)
    assert payload_keys_digest(reversed(keys)) == digest
    assert payload_keys_digest([*keys, "one more"]) != digest
