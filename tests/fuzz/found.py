"""Inputs that a parser once broke on: (target, what was wrong, input).  Each stays mended."""

import json

from weightctl.adapters.nof.layout import Geometry, Holder, Superblock, encode_superblock

_DEEP = b"[" * 2000
_LONG = "9" * 400
_BAD_NAME = "\udcff~" + "a" * 64 + "~" + "0" * 16

_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%b\r\n{}\r\n"
_SEGMENTS = (
    b'{"segments":[{"segment_name":"a","segment_id":"b","client_id":"c","te_endpoint":"d",'
    b'"status":"OK","allocator_used_bytes":1e400,"allocator_capacity_bytes":2}]}'
)


def _options(**table: object) -> bytes:
    return json.dumps({"kind": "local_disk", "path": "a", **table}).encode()


def _superblock(total_bytes: int, half_bytes: int, host: str = "here") -> bytes:
    return encode_superblock(
        Superblock(
            uuid=bytes(16),
            generation=1,
            geometry=Geometry(total_bytes=total_bytes, half_bytes=half_bytes),
            half=0,
            epoch=1,
            claim=1,
            sequence=0,
            clean=False,
            holder=Holder(host=host, boot_id="b", pid=1, since_ms=1),
        )
    )


def _wordless() -> bytes:
    fields = ("code", "reason", "what", "why", "todo")
    return json.dumps({"error": dict.fromkeys(fields, "")}).encode() + b"\n"


_LISTS = {"ok": True} | dict.fromkeys(
    ("values", "disk_values", "local_disk_values", "nof_values")
)  # fmt: skip


def _answer(**data: object) -> bytes:
    return json.dumps({"success": True, "data": data}).encode()


FOUND: tuple[tuple[str, str, bytes], ...] = (
    ("list", "token-of-no-text", b"production/llama-70b\n\xff"),
    ("name", "stored-name-of-no-text", _BAD_NAME.encode("utf-8", "surrogateescape")),
    ("oplog-row", "type-beyond-a-byte", b'[1,2,300,{"b":"t"},"k",{"b":"p"},0,null]'),
    ("oplog-row", "columns-of-other-types", b'[1,null,8,"t",{"b":"k"},"p",0,null]'),
    ("store-evidence", "no-rows", b"null"),
    ("store-evidence", "other-columns", b"[[1,2]]"),
    ("store-evidence", "nested", _DEEP),
    ("store-evidence", "columns-of-other-types", json.dumps(
        [["k", "a", "b", "c", [[]], "00", "e", 1, 2, 3]]).encode()),
    ("store-damage", "other-types", b'[1,"nof",{"b":"k"},"i","e",{"b":""},1,0]'),
    ("lock-text", "nested", _DEEP),
    ("lock-text", "endless-numbers", b'{"pid":1e400,"host":"h","startedMs":1e400}'),
    ("tier-fence", "term-of-many-digits", b'{"a":-' + b"9" * 4300 + b"}"),
    ("tier-fence", "term-below-zero", b'{"a":-1}'),
    ("mooncake-health", "nested", _DEEP),
    ("mooncake-segments", "endless-size", _SEGMENTS),
    ("mooncake-http", "chunk-below-all-numbers", _CHUNKED % b"-18446744073709551615"),
    ("mooncake-http", "chunk-beyond-all-numbers", _CHUNKED % b"fffffffffffffffffffff"),
    ("mooncake-query", "replicas-in-an-object", _answer(k=_LISTS | {"values": {"size_": 1}})),
    ("mooncake-query", "replica-that-is-a-number", _answer(k=_LISTS | {"values": [1]})),
    ("mooncake-query", "entry-that-is-a-list", _answer(k=[])),
    ("mooncake-query", "place-of-no-text", _answer(
        k=_LISTS | {"disk_values": [{"object_size": 4096, "file_path": "\udcda"}]})),
    ("config-file", "endless-size", f'[policy]\npass_bytes_max = "{_LONG}"\n'.encode()),
    ("config-file", "share-of-many-digits", f"[policy]\nmass_change_share = {_LONG}\n".encode()),
    ("config-file", "number-of-too-many-digits", b"[policy]\ncold_copies = " + b"9" * 5000),
    ("config-file", "key-of-many-parts", b"policy" + b".a" * 100_000 + b" = 1\n"),
    ("config-file", "refused-value-nested", b"[policy]\ncold_copies" + b".a" * 250 + b" = 1\n"),
    ("config-file", "state-directory-with-nul", b'state_dir = "a\\u0000b"\n'),
    ("settings", "home-of-nobody", b"state_dir=~nobody-of-that-name/x"),
    ("settings", "endless-size", f"import.payload_bytes={_LONG}".encode()),
    ("tier-options", "endless-size", _options(capacity_bytes=_LONG)),
    ("tier-options", "duration-of-many-digits", _options(deadline_s=10**400)),
    ("tier-options", "more-workers-than-can-be", _options(workers=10**9)),
    ("control-reply", "progress-without-total", b'{"progress":{"stage":"evict","done":3}}\n'),
    ("control-reply", "refusal-that-is-a-number", b'{"error":7}\n'),
    ("control-reply", "refusal-without-words", _wordless()),
    ("control-reply", "note-that-is-a-number", b'{"note":7}\n'),
    ("nof-superblock", "regions-of-no-size", _superblock(0, 256 * 1024)),
    ("nof-superblock", "regions-beyond-all-numbers", _superblock(4 * 1024 * 1024, 2**60)),
    ("nof-superblock", "host-of-no-text", _superblock(4 * 1024 * 1024, 256 * 1024, "\udcff")),
    ("mooncake-keys", "key-with-another-line-end", b"a\x85b\nc\xe2\x80\xa8d\n"),
)  # fmt: skip
