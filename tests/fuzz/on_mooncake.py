"""Targets: what a Mooncake Master, or whoever has its port, answers over HTTP."""

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any

from tests.fuzz.target import Fault, Target
from weightctl.adapters.mooncake.master import admin as product
from weightctl.adapters.mooncake.master.asking import Line
from weightctl.adapters.mooncake.master.replicas import (
    KINDS,
    has_cold,
    in_memory,
    is_absent,
    is_there,
    place_of,
    size_of,
    state_of,
)
from weightctl.controller.clock import SystemClock
from weightctl.controller.core.observation import MemberState
from weightctl.controller.errors import TransientError

_HEALTH = product.Health(address="127.0.0.1:1", role="leader", view="1")
_SIZE = 4096


class Answering(product.Admin):
    """Has every request answered by the same body."""

    def __init__(self, body: bytes) -> None:
        super().__init__([_HEALTH.address], 1.0, SystemClock())
        self._body = body

    def _get(
        self,
        address: str,
        path: str,
        bytes_max: int,
        feed: Callable[[bytes], None] | None = None,
    ) -> bytes:
        for at in range(0, len(self._body), 3):
            if feed is not None:
                feed(self._body[at : at + 3])
        return self._body


def _check_health(value: product.Health, raw: bytes) -> None:
    if json.loads(raw)["service_ready"] is not True:
        raise Fault("a Master that is not serving is asked")


def _check_entries(entries: Any, raw: bytes) -> None:
    """Every question that the tiers ask of an entry has an answer."""
    for entry in (entries.get("k"), entries.get("other"), None):
        for kind in KINDS.values():
            state = state_of(entry, kind, _SIZE)
            if entry is not None and state is MemberState.COMPLETE:
                place_of(entry, kind)
            if state is MemberState.ABSENT and not (is_there(entry) or is_absent(entry)):
                raise Fault(f"{entry!r:.200} is taken for absence")
        if entry is not None:
            size_of(entry)
            has_cold(entry, _SIZE)
            for found in in_memory(entry):
                found.endpoint.encode("utf-8", "surrogatepass")


def _check_keys(value: list[str], raw: bytes) -> None:
    lines = raw.decode("utf-8", "replace").split("\n")
    if value != [line for line in lines if line and "," not in line]:
        raise Fault("the keys are not the lines of the answer that can be asked for")


def _entry(**changes: object) -> dict[str, object]:
    place = {"size_": _SIZE, "transport_endpoint_": "h:1", "buffer_address_": 7}
    entry: dict[str, object] = {
        "ok": True,
        "values": [place, place],
        "disk_values": [{"object_size": _SIZE, "file_path": "/a"}],
        "local_disk_values": [{"object_size": _SIZE, "client_id": "c"}],
        "nof_values": None,
    }
    return entry | changes


def _missing(error: str) -> dict[str, object]:
    return dict.fromkeys(_entry()) | {"ok": False, "error": error}


def _query_seeds() -> list[bytes]:
    answers = (
        {"k": _entry(), "other": _entry(values=[])},
        {"k": _missing("OBJECT_NOT_FOUND")},
        {"k": _missing("REPLICA_IS_NOT_READY"), "other": None},
        {"k": {"ok": True, "values": []}},
        {"k": _entry(values={"size_": _SIZE}), "other": []},
        {"k": _entry(values=[1]), "other": _entry(disk_values="x")},
    )
    return [json.dumps({"success": True, "data": data}).encode() for data in answers]


def _check_segments(value: list[product.Segment], raw: bytes) -> None:
    if sum(one.capacity_bytes for one in value) < 0:
        raise Fault("segments of less than nothing")


def _segment_seeds() -> list[bytes]:
    row: dict[str, object] = {
        "segment_name": "h:1",
        "segment_id": "a",
        "client_id": "c",
        "te_endpoint": "h:1",
        "status": "OK",
        "allocator_used_bytes": 1,
        "allocator_capacity_bytes": 2,
    }
    odd = row | {"allocator_used_bytes": 1e400, "allocator_capacity_bytes": "9"}
    return [json.dumps({"segments": rows}).encode() for rows in ([row], [row, row], [odd], None)]


class _Socket:
    """A connection on which the answer has come already."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def sendall(self, data: bytes) -> None:
        pass

    def makefile(self, mode: str) -> BytesIO:
        return BytesIO(self._answer)

    def close(self) -> None:
        pass

    setblocking = settimeout = lambda self, value: None

    def recv(self, count: int) -> bytes:
        raise BlockingIOError


def _parse_http(raw: bytes) -> product.Health:
    asked = product.Admin([_HEALTH.address], 1.0, SystemClock())
    connection = Line(_HEALTH.address, 1.0, SystemClock())
    connection.sock = _Socket(raw)
    connection.auto_open = 0
    asked._idle[_HEALTH.address].put(connection)
    return asked.health()


def _http_seeds() -> list[bytes]:
    body = b'{"service_ready":true,"role":"leader","view_version":3}'
    plain = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
    return [
        plain,
        chunked % (len(body), body),
        b"HTTP/1.0 200 OK\r\n\r\n" + body,
        b"HTTP/1.1 503 no\r\nContent-Length: 2\r\n\r\nno",
        b"HTTP/1.1 100 Continue\r\n\r\n" + plain,
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\nA: b\r\n c\r\n\r\n" + body,
    ]


TARGETS = (
    Target(
        name="mooncake-health",
        parse=lambda raw: Answering(raw).health(),
        check=_check_health,
        refusals=(TransientError,),
        seeds=lambda: [b'{"service_ready":true,"role":"leader","view_version":3}', b"{}"],
        form="json",
    ),
    Target(
        name="mooncake-query",
        parse=lambda raw: Answering(raw).query(_HEALTH, ["k"]),
        check=_check_entries,
        refusals=(TransientError,),
        seeds=_query_seeds,
        form="json",
        words=(b"values", b"disk_values", b"local_disk_values", b"nof_values", b"size_",
               b"object_size", b"OBJECT_NOT_FOUND", b"REPLICA_IS_NOT_READY"),
    ),
    Target(
        name="mooncake-segments",
        parse=lambda raw: Answering(raw).segments(_HEALTH),
        check=_check_segments,
        refusals=(TransientError,),
        seeds=_segment_seeds,
        form="json",
    ),
    Target(
        name="mooncake-keys",
        parse=lambda raw: Answering(raw).all_keys(_HEALTH),
        check=_check_keys,
        refusals=(TransientError,),
        seeds=lambda: [b"a\nb\r\n\na,b\n", b"\xff\xfe\n"],
        form="text",
    ),
    Target(
        name="mooncake-http",
        parse=_parse_http,
        refusals=(TransientError,),
        seeds=_http_seeds,
        words=(b"Content-Length: ", b"Transfer-Encoding: chunked", b"\r\n", b"HTTP/1.1 200 OK",
               b"Connection: close", b"ffffffffffffffff\r\n"),
        shapes={
            "headers": lambda n: b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * n + b"\r\n",
            "chunks": lambda n: (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * n
            ),
        },
    ),
)  # fmt: skip
