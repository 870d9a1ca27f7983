"""Targets: identities, page tokens and what is made of names."""

from typing import Any

from tests.fuzz.target import Fault, Target, same, text_of
from tests.support.weights import World, identity
from weightctl.adapters.shared import layout
from weightctl.controller.api import reads
from weightctl.controller.core.identity import (
    Identity,
    encode_text,
    format_identity,
    identity_digest,
    is_valid_component,
    is_valid_sha256,
    is_valid_tenant,
    manifest_key,
    page_token,
    parse_identity,
    parse_page_token,
    payload_group_id,
    percent_encode,
)
from weightctl.controller.errors import WeightError

_WORDS = (
    b"@",
    b":",
    b"/",
    b"%2F",
    b"%25",
    b"%00",
    b"%7f",
    b"%C3%A9",
    b"%ff",
    b"18446744073709551615",
)


def _identity_seeds() -> list[bytes]:
    texts = (
        "prod/llama%2F70b/v1@7", "tenant-a:prod/m/v1@1", "a/b/c@18446744073709551615",
        "_x:a/b/c@1", "a/b/c@0", "%ed%b3%bf/%c3%a9/%F0%9F%9A%80@0007", ":a/b/c@1", "a/b/c@",
        "a/b@1", "a/b/c@18446744073709551616", f"{'a' * 1024}/{'b' * 1025}/c@1",
    )  # fmt: skip
    return [text.encode() for text in texts]


def _check_identity(value: Identity, raw: bytes) -> None:
    same(value.problem(), None, "problem of an accepted identity")
    same(parse_identity(format_identity(value)), value, "identity read back")
    if not manifest_key(value).isascii() or not is_valid_sha256(identity_digest(value)):
        raise Fault("a derived name is not plain")
    same(len(payload_group_id(value)), 71, "length of the group id")


def _parse_token(raw: bytes) -> tuple[str, int] | None:
    return parse_page_token(text_of(raw))


def _check_token(value: tuple[str, int] | None, raw: bytes) -> None:
    if value is None:
        return
    revision, generation = value
    if not 1 <= generation < 2**64 or not revision:
        raise Fault(f"token accepted as {value}")
    of = Identity(namespace="n", resource_id="r", revision=revision, weight_generation=generation)
    same(parse_page_token(page_token(of)), value, "token read back")


def _listed() -> World:
    world = World()
    for revision, generation in (("a", 1), ("a", 3), ("b", 2)):
        world.begin(identity(revision, generation))
    return world


_STATE = _listed().state


def _list(raw: bytes) -> Any:
    """First line: a resource, or nothing for all; second: a token, as typed."""
    resource, _, token = text_of(raw).partition("\n")
    if not resource:
        return reads.list_all(_STATE, page_token=token, limit=2, now_ms=1)
    return reads.list_one(_STATE, resource, page_token=token, limit=2, now_ms=1)


def _list_seeds() -> list[bytes]:
    one = b"production/llama-70b\n"
    return [
        one, one + b"a%1F1", one + b"a%1F03", one + b"b%1f99", one + b"%1F1", b"\n",
        b"\nproduction/llama-70b/a@3", b"t:n/r\na%1F18446744073709551616", b"n/r/x\n",
    ]  # fmt: skip


def _check_list(value: Any, raw: bytes) -> None:
    if len(value["items"]) > 2:
        raise Fault("more rows than were asked for")


def _name_of(raw: bytes) -> str:
    return text_of(raw)


def _check_name(text: str, raw: bytes) -> None:
    """One text as component, tenant, key, group id and file name."""
    known = encode_text(text)
    if is_valid_component(text) and (known is None or not 1 <= len(known) <= 1024):
        raise Fault(f"{text!r} is taken for a component")
    if is_valid_tenant(text) and (known is None or text.startswith("_")):
        raise Fault(f"{text!r} is taken for a tenant")
    if not percent_encode(text).isascii():
        raise Fault(f"{text!r} is not encoded")
    if known is None:
        return
    encoded = layout.encode_text(text)
    plain = encoded.isascii() and not set(encoded) & {"/", "\0"} and encoded not in {"", ".", ".."}
    if not plain or encoded.startswith(".") or len(encoded) > 255:
        raise Fault(f"{text!r} becomes the file name {encoded!r}")
    if not layout.is_hashed(encoded):
        same(layout.decode_text(encoded), text, "name read back")
    _check_stored(text)
    _check_stored(f"{encoded}~{'a' * 64}~{'0' * 16}")


def _check_stored(name: str) -> None:
    stored = layout.parse_stored(name)
    if stored is not None:
        same(str(stored), name, "file name written again")
        layout.decode_text(stored.text)
        if not layout.is_instance(stored.instance_id) or not is_valid_sha256(stored.sha256_hex):
            raise Fault(f"{name!r} is taken for a replica")


def _name_seeds() -> list[bytes]:
    tail = "~" + "ab" * 32 + "~" + "01" * 8
    texts = (
        "weight:" + "0" * 64, "weights/a%2Fb/c/1/payload/00000000", ".", "..", "", "%", "%%", "~",
        f"key{tail}", f"key{tail}.partial", f"%2Ehidden{tail}.quarantined", f"%%{'a' * 64}{tail}",
        f"%%{'a' * 64}~name", "a" * 200, "é" * 40, "a\nb", "a\0b", f"{tail}", f"a/b{tail}",
    )  # fmt: skip
    return [text.encode() for text in texts] + [b"\xff\xfe", b"\xed\xa0\x80", b"\xc3\xa9" * 512]


TARGETS = (
    Target(
        name="identity",
        parse=lambda raw: parse_identity(text_of(raw)),
        check=_check_identity,
        refusals=(WeightError,),
        seeds=_identity_seeds,
        form="text",
        bytes_max=256,
        words=_WORDS,
        shapes={
            "long": lambda n: b"a" * n + b"/b/c@1",
            "escaped": lambda n: b"%41" * n + b"/b/c@1",
            "slashes": lambda n: b"/" * n,
            "digits": lambda n: b"a/b/c@" + b"9" * n,
            "percents": lambda n: b"a/b/" + b"%25" * n + b"%@1",
        },
    ),
    Target(
        name="page-token",
        parse=_parse_token,
        check=_check_token,
        refusals=(),
        seeds=lambda: [b"a\x1f1", b"a\x1f\x1f0012", b"\x1f1", b"a\x1f18446744073709551616"],
        form="text",
        bytes_max=256,
        words=(b"\x1f", b"0", b"18446744073709551615"),
        shapes={
            "separators": lambda n: b"\x1f" * n + b"1",
            "zeros": lambda n: b"a\x1f" + b"0" * n,
        },
    ),
    Target(
        name="list",
        parse=_list,
        check=_check_list,
        refusals=(WeightError,),
        seeds=_list_seeds,
        form="text",
        bytes_max=256,
        words=(*_WORDS, b"\n", b"%1F", b"production", b"llama-70b"),
        shapes={"token": lambda n: b"production/llama-70b\n" + b"%41" * n + b"%1F1"},
    ),
    Target(
        name="name",
        parse=_name_of,
        check=_check_name,
        refusals=(),
        seeds=_name_seeds,
        form="text",
        bytes_max=256,
        words=(b"~", b".partial", b".quarantined", b"%%", b"%", b"/", b"\0", b"~name", b"\xff"),
        shapes={"tildes": lambda n: b"~" * n, "bytes": lambda n: b"\xff" * n},
    ),
)  # fmt: skip
