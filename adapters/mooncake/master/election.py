"""Which of several Masters leads, as their etcd says it.  Layer: a tier; blocking.

A leader writes its RPC address into etcd; its HTTP interface is on the same host, at a port that is
the same for all Masters, or at the addresses that are named.  etcd is asked before every look, over
the HTTP that it speaks beside its own protocol.  Invariant: an answer counts only from the Master
that etcd names, and only while that one names itself too: neither a deposed leader, which may say
for a moment that it serves, nor a neighbour on its port is taken for it.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING

from msgspec import MsgspecError, Struct
from msgspec.json import Decoder

from weightctl.adapters.mooncake.master.admin import ANSWER_BYTES_MAX, Admin, Health
from weightctl.adapters.mooncake.master.asking import FAILURES, Line
from weightctl.controller.errors import TransientError

if TYPE_CHECKING:
    from weightctl.adapters.mooncake.options import ConnectionOptions
    from weightctl.controller.ports import Clock

_PREFIX = "mooncake-store/"
_VIEW = "/master_view"
_PATH = "/v3/kv/range"
_NAMES_TOLD = 8
_EVERYWHERE = frozenset({"", "0.0.0.0", "::", "[::]"})  # noqa: S104 - refused, not listened on
_OK = 200
_SET = (
    "see `weightctl doctor`; the options `master`, `cluster` and `admin_port` say where it is, or"
    " `admin` where the Masters have different HTTP ports"
)


class _Pair(Struct):
    key: str
    value: str = ""


class _Found(Struct):
    kvs: list[_Pair] = []


_FOUND = Decoder(_Found)


class Elected(Admin):
    """The Master that etcd names the leader of a cluster; all calls block."""

    def __init__(self, options: ConnectionOptions, clock: Clock) -> None:
        super().__init__(options.admin, options.deadline_s, clock, options.transfer_s)
        self._endpoints = tuple(options.master.removeprefix("etcd://").split(";"))
        self._cluster = options.cluster
        self._admin_port = options.admin_port

    def health(self) -> Health:
        """The leader, when it serves.  Raises TransientError."""
        leader = self._leader()
        named = f"etcd names {leader} the leader of cluster {self._cluster}"
        try:
            if self._addresses:
                return self._serving_first(leader)
            host = leader.rpartition(":")[0]
            if host not in _EVERYWHERE:
                return self.serving([f"{host}:{self._admin_port}"], leader)
        except TransientError as error:
            raise TransientError(error.what, f"{named}; {error.why}", _SET) from error
        raise TransientError(
            named,
            f"{named}, which is no address that others reach",
            "start each Master with --rpc_address=ADDRESS, as its clients reach it",
        )

    def _leader(self) -> str:
        """RPC address of the leader.  Raises TransientError when there is none."""
        found = self._range(f"{_PREFIX}{self._cluster}{_VIEW}")
        if found:
            return found[0][1]
        names = [key.removeprefix(_PREFIX) for key, _ in self._range(_PREFIX, below=True)]
        others = [name.removesuffix(_VIEW) for name in names if name.endswith(_VIEW)]
        told = f"; it knows one of {', '.join(others[:_NAMES_TOLD])}" if others else ""
        raise TransientError(
            "there is no Mooncake Master that leads",
            f"etcd {self._endpoints[0]} knows no leader of cluster {self._cluster}{told}",
            "set `cluster` to the Masters' --cluster_id, or wait until one of them is elected",
        )

    def _range(self, key: str, *, below: bool = False) -> list[tuple[str, str]]:
        """(key, value) of a key, or of all below it.  Raises TransientError."""
        problems = []
        asked = {"key": _encoded(key)}
        if below:
            asked |= {"range_end": _encoded(key[:-1] + chr(ord(key[-1]) + 1)), "limit": "100"}
        for endpoint in self._endpoints:
            try:
                found = _pairs(self._post(endpoint, json.dumps(asked)))
            except (*FAILURES, MsgspecError, RecursionError) as error:
                problems.append(f"{endpoint}: {type(error).__name__}: {error}")
                continue
            # The one that answers is asked first from now on.
            self._endpoints = tuple(dict.fromkeys((endpoint, *self._endpoints)))
            return found
        raise TransientError(
            "etcd gave no answer that can be used", f"etcd {'; '.join(problems)}", _SET
        )

    def _post(self, endpoint: str, body: str) -> bytes:
        line = Line(endpoint, self.deadline_s, self._clock)
        try:
            kind = {"Content-Type": "application/json"}
            status, answer = line.ask("POST", _PATH, ANSWER_BYTES_MAX, body=body, headers=kind)
        finally:
            line.close()
        if status != _OK:
            raise ValueError(f"answered {status}: {answer[:200]!r}")
        return answer


def admin_of(options: ConnectionOptions, clock: Clock) -> Admin:
    """The HTTP side of a connection: of the one Master, or of the one that is elected."""
    if options.master.startswith("etcd://"):
        return Elected(options, clock)
    return Admin(options.admin, options.deadline_s, clock, options.transfer_s)


def _encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


def _pairs(answer: bytes) -> list[tuple[str, str]]:
    return [(_decoded(pair.key), _decoded(pair.value)) for pair in _FOUND.decode(answer).kvs]


def _decoded(text: str) -> str:
    return b64decode(text, validate=True).decode()
