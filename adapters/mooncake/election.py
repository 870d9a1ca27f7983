"""Which of several Masters leads, as their etcd says it.  Layer: a tier; blocking.

A leader writes its RPC address into etcd; its HTTP interface is on the same host, at a port that is
the same for all Masters.  etcd is asked before every look, over the HTTP that it speaks beside its
own protocol.  Invariant: an answer counts only from the Master that etcd names, and only while that
one names itself too: neither a deposed leader nor a neighbour on its port is taken for it.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any

from weightctl.adapters.mooncake.admin import ANSWER_BYTES_MAX, Admin, Health
from weightctl.controller.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weightctl.adapters.mooncake.options import ConnectionOptions

_PREFIX = "mooncake-store/"
_VIEW = "/master_view"
_PATH = "/v3/kv/range"
_NAMES_TOLD = 8
_EVERYWHERE = frozenset({"", "0.0.0.0", "::", "[::]"})  # noqa: S104 - refused, not listened on
_OK = 200
_SET = "see `weightctl doctor`; the options `master`, `cluster` and `admin_port` say where it is"


class Elected(Admin):
    """The Master that etcd names the leader of a cluster; all calls block."""

    def __init__(
        self, endpoints: Sequence[str], cluster: str, admin_port: int, deadline_s: float
    ) -> None:
        super().__init__((), deadline_s)
        self._endpoints = tuple(endpoints)
        self._cluster = cluster
        self._admin_port = admin_port

    def health(self) -> Health:
        """The leader, when it serves.  Raises TransientError."""
        leader = self._leader()
        host = leader.rpartition(":")[0]
        address = f"{host}:{self._admin_port}"
        named = f"etcd names {leader} the leader of cluster {self._cluster}"
        if host in _EVERYWHERE:
            raise TransientError(
                named,
                f"{named}, which is no address that others reach",
                "start each Master with --rpc_address=ADDRESS, as its clients reach it",
            )
        try:
            health = self.serving([address])
        except TransientError as error:
            raise TransientError(error.what, f"{named}; {error.why}", _SET) from error
        if health.leader != leader:
            raise TransientError(
                "the Mooncake Master that leads was not found",
                f"{named}; {address} takes {health.leader or 'nobody'} for it",
                "it is asked again; where Masters have different HTTP ports, name the address of"
                " each in the option `admin`",
            )
        return health

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
            except (OSError, HTTPException, ValueError, TypeError, LookupError) as error:
                problems.append(f"{endpoint}: {type(error).__name__}: {error}")
                continue
            # The one that answers is asked first from now on.
            self._endpoints = tuple(dict.fromkeys((endpoint, *self._endpoints)))
            return found
        raise TransientError(
            "etcd gave no answer that can be used", f"etcd {'; '.join(problems)}", _SET
        )

    def _post(self, endpoint: str, body: str) -> bytes:
        host, _, port = endpoint.rpartition(":")
        connection = HTTPConnection(host, int(port), timeout=self.deadline_s)
        try:
            connection.request("POST", _PATH, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read(ANSWER_BYTES_MAX)
        finally:
            connection.close()
        if response.status != _OK:
            raise ValueError(f"answered {response.status}: {answer[:200]!r}")
        return answer


def admin_of(options: ConnectionOptions) -> Admin:
    """The HTTP side of a connection: of the Masters that are named, or of the one elected."""
    if options.admin:
        return Admin(options.admin, options.deadline_s)
    endpoints = options.master.removeprefix("etcd://").split(";")
    return Elected(endpoints, options.cluster, options.admin_port, options.deadline_s)


def _encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


def _pairs(answer: bytes) -> list[tuple[str, str]]:
    found: Any = json.loads(answer)
    if not isinstance(found, dict):
        raise ValueError("its answer is no object")  # noqa: TRY004 - caught with the others above
    return [
        (_decoded(pair["key"]), _decoded(pair.get("value", ""))) for pair in found.get("kvs", [])
    ]


def _decoded(text: str) -> str:
    return b64decode(text, validate=True).decode()
