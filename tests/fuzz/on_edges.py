"""Targets: configuration, options of tiers, the command line and the control socket."""

import contextlib
import io
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Self
from zlib import crc32

from pydantic import BaseModel

from tests.fuzz import scratch
from tests.fuzz.target import Fault, Target, same, text_of
from weightctl.adapters.dfs import options as dfs
from weightctl.adapters.mooncake import options as mooncake
from weightctl.adapters.mooncake.master.replicas import KINDS
from weightctl.adapters.shared.options import TierOptions
from weightctl.controller.api import client, requests, server, views, wire
from weightctl.controller.cli import calling
from weightctl.controller.cli.exit_codes import ExitCode
from weightctl.controller.cli.parser import Grammar
from weightctl.controller.cli.progress import Progress
from weightctl.controller.config.loading import Config, load
from weightctl.controller.config.settings import SETTINGS
from weightctl.controller.config.values import shown
from weightctl.controller.errors import ConfigError, ErrorCode, UnknownOutcomeError, WeightError

_HOME = {"HOME": "/nonexistent"}
_KEYS = tuple(setting.key for setting in SETTINGS)
_RAW_KEYS = [key.encode() for key in _KEYS]


# --- configuration --------------------------------------------------------------------------------


def _parse_config(raw: bytes) -> Config:
    path = scratch.written("config.toml", raw)
    return load(environ=_HOME, file=str(path))


def _check_config(value: Config, raw: bytes) -> None:
    value.policy()
    json.dumps({key: shown(found) for key, found in value.values.items()})
    for tier in value.tiers:
        if len(tier.name) > 32:
            raise Fault(f"tier {tier.name!r}")


_TOML = """
state_dir = "/tmp/x"
[policy]
tier_preference = ["nof", "dfs"]
cold_copies = 2
windows = ["22:00-06:00"]
mass_change_share = 0.5
pass_bytes_max = "4GiB"
[lease]
ttl_ms = 60_000
[observer]
deadline_s = 0.1
[log]
level = "info"
[[tier]]
name = "memory"
kind = "memory"
path = "/dev/shm/x"
[[tier]]
name = "nof"
kind = "nof"
path = 'a.img'
[tier.limits]
concurrency = 4
bandwidth_bytes_per_s = "1.5GB"
"""


def _config_seeds() -> list[bytes]:
    return [
        _TOML.encode(),
        b"",
        b"[policy]\npaused = 1979-05-27T07:32:00Z\n",
        b"policy.paused = true\nlease = {ttl_ms = '90s'}\n",
        b"[policy]\nmass_change_share = " + b"9" * 400,
        b"[policy]\ncold_copies = 0x" + b"f" * 9 + b"\nsettle_s = inf\nevidence_max_age_s = nan\n",
        b'[policy]\npass_bytes_max = "' + b"9" * 400 + b'"\n',
        b"[policy]\ncold_copies" + b".a" * 300 + b" = 1\n",
    ]


def _parse_settings(raw: bytes) -> Config:
    """Lines: KEY=VALUE as flags, NAME=VALUE of the environment."""
    assignments, environ = [], dict(_HOME)
    for line in text_of(raw).split("\n"):
        name, _, value = line.partition("=")
        if name.startswith("WEIGHTCTL_"):
            environ[name] = value.replace("\0", "")
        else:
            assignments.append(line)
    return load(environ=environ, assignments=assignments)


def _mend_settings(raw: bytes) -> bytes:
    """A key that is not known becomes one that is, so that its value is read."""
    lines = []
    for line in raw.split(b"\n"):
        name, _, value = line.partition(b"=")
        if name not in _RAW_KEYS and not name.startswith(b"WEIGHTCTL_"):
            name = _RAW_KEYS[crc32(name) % len(_RAW_KEYS)]
        lines.append(name + b"=" + value)
    return b"\n".join(lines)


def _settings_seeds() -> list[bytes]:
    words = (
        "512MiB", "1.5TB", "0", "1e3", "90s", "15m", "500ms", "inf", "nan", "9" * 400, "-1", "²",
        "true", "22:00-06:00,01:00-02:00", "a,b", "info", "0.5", "\u0661\u0662s", "1" * 5000,
    )  # fmt: skip
    flags = [f"{key}={word}" for at, key in enumerate(_KEYS) for word in words[at % 5 :: 5]]
    return [flag.encode() for flag in flags] + [
        b"WEIGHTCTL_POLICY_COLD_COPIES=2\nlease.ttl_ms=5",
        b"WEIGHTCTL_SERVICE_PORT=1",
        b"WEIGHTCTL_X=1",
    ]


def _dfs(name: str, table: dict[str, object]) -> object:
    return dfs.parse(name, table, SimpleNamespace(state_dir="/tmp"))  # type: ignore[arg-type]


def _plain(name: str, table: dict[str, object]) -> object:
    given = TierOptions(name, table, ("path", "capacity_bytes", "adopt", "deadline_s", "workers"))
    return (
        given.text("path"),
        given.size_bytes("capacity_bytes"),
        given.flag("adopt"),
        given.seconds("deadline_s", 1.0),
        given.count("workers", 2),
    )


def _of_mooncake(kind: str) -> Callable[[str, dict[str, object]], object]:
    return lambda name, table: mooncake.parse(name, kind, table)


_OPTIONS: dict[str, Callable[[str, dict[str, object]], object]] = {
    "local_disk": _plain,
    "dfs": _dfs,
    **{kind: _of_mooncake(kind) for kind in KINDS},
}


def _parse_options(raw: bytes) -> object:
    """A JSON table: what TOML gives a plugin, and integers of any length."""
    try:
        table = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(table, dict):
        return None
    kind = table.pop("kind", "")
    parse = _OPTIONS.get(kind if isinstance(kind, str) else "", _plain)
    return parse("t", table)


def _options_seeds() -> list[bytes]:
    plain = {"path": "a", "capacity_bytes": "20GiB", "deadline_s": 2.5, "workers": 3, "adopt": True}
    cluster = {
        "admin": "h:1, h2:2", "master": "h:3", "cluster": "c", "segments": "a,b",
        "lease_ttl_s": 1, "parking_bytes": 10**400,
    }  # fmt: skip
    tables: list[dict[str, object]] = [
        {"kind": "local_disk", **plain},
        {"kind": "dfs", **plain, "grace_s": 1},
        *({"kind": kind, **cluster} for kind in KINDS),
        {"kind": "dfs", **plain, "capacity_bytes": "9" * 400, "deadline_s": 10**400},
        {"kind": "mooncake-disk", **cluster, "capacity_bytes": 1, "parking_bytes": "1MiB"},
    ]
    return [json.dumps(table).encode() for table in tables]


# --- command line ---------------------------------------------------------------------------------


class UsageError(Exception):
    """The command line was refused with the exit code of wrong usage."""


_GRAMMAR = Grammar()


def _parse_command(raw: bytes) -> object:
    argv = text_of(raw).split("\n")
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            return _GRAMMAR.parse(argv)
    except SystemExit as end:
        if end.code not in (0, ExitCode.USAGE):
            raise Fault(f"exit code {end.code}") from end
        raise UsageError(said.getvalue()[:4000] or "help") from end


def _command_seeds() -> list[bytes]:
    lines = (
        "get prod/m/v1@1", "list prod/m --limit 5 --page-token a%1F1", "evict a/b/c@1 --wait",
        "evict a/b/c@1 --timeout 5m --wait", "lease acquire a/b/c@1 --holder x --ttl 1h",
        "lease renew 7 --tenant t", "--set policy.paused=true get a/b/c@1 -o json", "demo --seed 1",
        "demo --kill-at 0.5 --kill-at nan", "oplog show --from 1 --limit -3", "--help", "lease",
        "import a/b/c@1 /x", "config show --origin", f"list --limit {'9' * 5000}", "schema Plan",
    )  # fmt: skip
    return [line.replace(" ", "\n").encode() for line in lines]


# --- control socket -------------------------------------------------------------------------------


def _parse_request(raw: bytes) -> BaseModel:
    request = server.parse_request(raw)
    params = requests.check(request.verb, request.params)
    if not isinstance(params, BaseModel):
        raise Fault(f"{params!r}")
    return params


def _request_seeds() -> list[bytes]:
    identity = "prod/m/v1@1"
    asked: list[tuple[str, dict[str, object]]] = [
        ("plan", {"identity": identity}),
        ("tiers", {}),
        ("evict", {"identity": identity, "wait": True, "timeout_s": 5, "expected_generation": 2}),
        ("repair", {"identity": identity, "target": "hot"}),
        ("lease renew", {"lease_id": 1, "tenant_id": "t", "ttl_ms": 5}),
        ("load", {"identity": identity, "folder": "/x", "tensors": ["a"], "holder": "h"}),
        ("evct", {"identity": identity}),
    ]
    return [
        wire.encode({"version": 1, "verb": verb, "params": params}) for verb, params in asked
    ] + [b'{"version":2,"verb":"x"}\n']


class _Peer:
    """The asking end's connection: what it sends is dropped, the answer has come already."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass

    def sendall(self, data: bytes) -> None:
        pass

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._answer)


def _parse_reply(raw: bytes) -> object:
    said = io.StringIO()
    console: Any = SimpleNamespace(note=said.write)
    with Progress(said, terminal=True) as progress:
        emit = calling._emitter(console, progress)
        peer: Any = _Peer(raw)
        try:
            return client.request(peer, "evict", {}, emit)
        except client.RemoteError as error:
            same(bool(error.what), True, "whether a refusal says something")
            raise UsageError(str(error) or "refused") from error


def _reply_seeds() -> list[bytes]:
    progress = {"stage": "evict", "done": 3, "total": 9, "unit": "members", "waits": "x"}
    refusal = WeightError(*_REFUSED)
    frames: list[dict[str, Any]] = [
        {"progress": progress},
        {"note": "waits for LeaseLive"},
        {"result": {"apiVersion": "weightctl/v1", "kind": "Revision"}},
        {"error": views.error(refusal)},
        {"other": 1},
    ]
    lines = list(map(wire.encode, frames))
    return [*lines, b"".join(lines[:3]), lines[0] + lines[3], b""]


_REFUSED: Any = (ErrorCode.BUSY, "what", "why", "todo")

_TOML_WORDS = (b"[[tier]]", b"[tier.limits]", b"'''", b'"""', b" = ", b"\n", b".", b"inf", b"nan",
               b"0x", b"{", b"}", b"1979-05-27", *(key.encode() for key in _KEYS[::4]))  # fmt: skip

TARGETS = (
    Target(
        name="config-file",
        parse=_parse_config,
        check=_check_config,
        refusals=(ConfigError,),
        seeds=_config_seeds,
        form="text",
        words=_TOML_WORDS,
        shapes={
            "tables": lambda n: b"[policy]\n" + b"".join(b"a%d = 1\n" % at for at in range(n)),
            "tiers": lambda n: b"".join(
                b'[[tier]]\nname = "t%d"\nkind = "nof"\n' % at for at in range(n)
            ),
            "dots": lambda n: b"policy" + b".a" * n + b" = 1\n",
            "strings": lambda n: b'state_dir = """' + b"\\n" * n + b'"""',
            "headers": lambda n: b"".join(b"[policy.a%d]\n" % at for at in range(n)),
        },
        changes=300,
    ),
    Target(
        name="settings",
        parse=_parse_settings,
        mend=_mend_settings,
        check=_check_config,
        refusals=(ConfigError,),
        seeds=_settings_seeds,
        form="text",
        words=(*_RAW_KEYS, b"KiB", b"ms", b"d", b"22:00-06:00", b"WEIGHTCTL_"),
        shapes={
            "digits": lambda n: b"import.payload_bytes=" + b"9" * n,
            "names": lambda n: b"policy.windows=" + b"".join(map(b"a%d,".__mod__, range(n))),
            "unknown": lambda n: b"p" * n + b"=1",
        },
        changes=1500,
    ),
    Target(
        name="tier-options",
        parse=_parse_options,
        refusals=(ConfigError,),
        seeds=_options_seeds,
        form="json",
        words=(b"path", b"capacity_bytes", b"deadline_s", b"workers", b"admin", b"master", b"GiB",
               *(kind.encode() for kind in _OPTIONS)),
        shapes={"unknown": lambda n: json.dumps({"a" * n: 1}).encode()},
    ),
    Target(
        name="command-line",
        parse=_parse_command,
        refusals=(UsageError,),
        seeds=_command_seeds,
        form="text",
        words=tuple(word.encode() for word in ("--set", "--wait", "--limit", "--ttl", "-o", "\n",
                                               *_GRAMMAR.verbs)),
        changes=400,
    ),
    Target(
        name="control-request",
        parse=_parse_request,
        refusals=(WeightError,),
        seeds=_request_seeds,
        form="json",
        words=tuple(verb.encode() for verb in requests.PARAMS),
        shapes={
            "verb": lambda n: wire.encode({"version": 1, "verb": "e" * n}),
            "fields": lambda n: wire.encode(
                {"version": 1, "verb": "plan", "params": {f"p{at}": at for at in range(n)}}
            ),
            "tensors": lambda n: wire.encode(
                {
                    "version": 1,
                    "verb": "load",
                    "params": {
                        "identity": "a/b/c@1", "folder": "/x", "holder": "h",
                        "tensors": [1] * n,
                    },
                }
            ),
        },
    ),
    Target(
        name="control-reply",
        parse=_parse_reply,
        refusals=(UsageError, UnknownOutcomeError),
        seeds=_reply_seeds,
        form="lines",
        words=(b"progress", b"result", b"error", b"note", b"stage", b"total", b"unit", b"code"),
        changes=1500,
    ),
)  # fmt: skip
