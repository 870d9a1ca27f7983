"""File names of keys: every text has one name, no two texts share one, and none is special."""

from hypothesis import example, given
from hypothesis import strategies as st

from weightctl.adapters.shared.layout import (
    PARTIAL,
    QUARANTINED,
    StoredName,
    decode_text,
    encode_text,
    is_hashed,
    is_text_file,
    parse_stored,
    text_and_suffix,
    text_file,
)

NAME_BYTES_MAX = 255
DIGEST = "ab" * 32
INSTANCE = "0123456789abcdef"

# Bytes of any kind as the store carries them, and texts of what names are made of.
RAW = st.binary(max_size=1200).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
AWKWARD = st.text(st.sampled_from("%~./aA0- \n\x00é2F5"), max_size=400)
PATTERNS = st.sampled_from(
    [
        "", ".", "..", "%", "%%", "~", "%2E", "%2F", "/", "a~name", "%%" + DIGEST, "%12" + "3" * 62,
        f"~{DIGEST}~{INSTANCE}", f"a~{DIGEST}~{INSTANCE}{PARTIAL}", "lost+found",
        f"%%{DIGEST}~name", "x" * 161, "x" * 162, "x" * 1024, ".partial", ".quarantined",
    ]
)  # fmt: skip
TEXTS = RAW | AWKWARD | PATTERNS


@given(text=TEXTS, suffix=st.sampled_from(["", PARTIAL, QUARANTINED]))
@example(text="." * 1024, suffix=QUARANTINED)
def test_a_text_survives_its_file_name(text: str, suffix: str) -> None:
    encoded = encode_text(text)
    assert decode_text(encoded) == (None if is_hashed(encoded) else text)
    stored = StoredName(text=encoded, sha256_hex=DIGEST, instance_id=INSTANCE, suffix=suffix)
    name = str(stored)
    assert parse_stored(name) == stored
    assert text_and_suffix(name) == (encoded, suffix)


@given(text=TEXTS)
def test_a_name_is_one_plain_visible_file_name(text: str) -> None:
    encoded = encode_text(text)
    longest = StoredName(text=encoded, sha256_hex=DIGEST, instance_id=INSTANCE, suffix=QUARANTINED)
    for name in (encoded, str(longest), text_file(encoded)):
        assert name.isascii()
        assert name.isprintable()
        assert 0 < len(name) <= NAME_BYTES_MAX
        assert not name.startswith(".")
        assert "/" not in name
    assert not is_text_file(str(longest))
    assert is_text_file(text_file(encoded)) == is_hashed(encoded)
    assert parse_stored(text_file(encoded)) is None


@given(texts=st.lists(TEXTS, min_size=2, unique=True))
def test_no_two_texts_share_a_name(texts: list[str]) -> None:
    raw = {text.encode("utf-8", "surrogateescape") for text in texts}
    assert len({encode_text(text) for text in texts}) == len(raw)


@given(name=TEXTS)
def test_what_does_not_parse_back_to_itself_is_foreign(name: str) -> None:
    stored = parse_stored(name)
    assert stored is None or str(stored) == name
