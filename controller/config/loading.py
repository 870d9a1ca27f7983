"""Gathering the configuration from file, environment and flags, with origins.  Layer: config.

Unknown names are refused with the nearest known one, wherever they stand: a misspelt guard must
never be a silent default.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weightctl.controller.config.places import (
    default_file,
    default_state_dir,
    expanded,
    memory_path,
)
from weightctl.controller.config.settings import (
    BY_KEY,
    BY_VARIABLE,
    SECTIONS,
    SETTINGS,
    TIER_LIMITS,
    Setting,
)
from weightctl.controller.core.policy import Policy
from weightctl.controller.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

CONFIG_VARIABLE = "WEIGHTCTL_CONFIG"
FAILPOINTS_VARIABLE = "WEIGHTCTL_FAILPOINTS"
"""Not a setting: see `weightctl.controller.failpoints`."""
_OTHER_VARIABLES = frozenset({CONFIG_VARIABLE, FAILPOINTS_VARIABLE})
FILE_BYTES_MAX = 256 * 1024
LINE_DOTS_MAX = 256
"""A dotted key costs the square of its parts."""
_VALUE_CHARACTERS_MAX = 200
_PREFIX = "WEIGHTCTL_"
# What Kubernetes sets in every pod of a namespace that has a service called `weightctl`.
_SERVICE_LINK = re.compile(r"WEIGHTCTL_(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\w+)?)")
_TIER_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_OF_TIER = frozenset({"name", "kind", "limits"})
_DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class TierConfig:
    """One `[[tier]]`: its name, the plugin's entry-point name, and options for the plugin."""

    name: str
    kind: str
    options: Mapping[str, object] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Only what was set, by the field names of the runtime's limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Every setting with the place that it came from."""

    values: Mapping[str, object]
    origins: Mapping[str, str]
    tiers: tuple[TierConfig, ...]
    tiers_origin: str

    @property
    def state_dir(self) -> str:
        """Absolute path of the state directory."""
        return str(self.values["state_dir"])

    def policy(self) -> Policy:
        """The section `policy`."""
        return Policy(**self.section("policy"))

    def section(self, name: str) -> dict[str, Any]:
        """The settings of one section by their short names."""
        start = name + "."
        return {
            key.removeprefix(start): value
            for key, value in self.values.items()
            if key.startswith(start)
        }


def load(
    *,
    environ: Mapping[str, str],
    file: str | None = None,
    assignments: Sequence[str] = (),
    state_dir: str | None = None,
) -> Config:
    """Read all three layers.  Raises ConfigError for the first thing that is wrong.

    `file` is `--config`, `assignments` are the texts of `--set`, `state_dir` is `--state-dir`.
    """
    path, table = _read_file(file or environ.get(CONFIG_VARIABLE), environ)
    found = {setting.key: (setting.default, _DEFAULT) for setting in SETTINGS}
    tiers: tuple[TierConfig, ...] = ()
    families = _families(table)
    own = {name: value for name, value in table.items() if name not in families}
    for key, value in _flatten(own, path):
        found[key] = _checked(BY_KEY[key], value, f"file {path}")
    if "tier" in table:
        tiers = _tiers(table["tier"], path, families)
    for variable, word in _variables(environ):
        setting = BY_VARIABLE[variable]
        found[setting.key] = _checked(setting, word, f"environment {variable}")
    for assignment in assignments:
        setting, word = _assignment(assignment)
        found[setting.key] = _checked(setting, word, f"flag --set {setting.key}")
    if state_dir is not None:
        found["state_dir"] = _checked(BY_KEY["state_dir"], state_dir, "flag --state-dir")
    found["state_dir"] = _state_dir(*found["state_dir"], file=path, environ=environ)
    chosen = {key: value for key, (value, _) in found.items()}
    tiers_known = tiers or default_tiers(str(chosen["state_dir"]))
    _check_retired(*found["policy.retired_tiers"], tiers_known)
    return Config(
        values=chosen,
        origins={key: origin for key, (_, origin) in found.items()},
        tiers=tiers_known,
        tiers_origin=f"file {path}" if tiers else _DEFAULT,
    )


def default_tiers(state_dir: str) -> tuple[TierConfig, ...]:
    """Memory and one cold tier, for this state directory alone."""
    disk = str(Path(state_dir) / "tiers" / "local_disk")
    return (
        TierConfig(name="memory", kind="memory", options={"path": memory_path(state_dir)}),
        TierConfig(name="local_disk", kind="local_disk", options={"path": disk}),
    )


def _check_retired(retired: object, origin: str, tiers: Sequence[TierConfig]) -> None:
    """A tier cannot be in use and have no medium any more."""
    names = retired if isinstance(retired, tuple) else ()
    both = [tier.name for tier in tiers if tier.name in names]
    if both:
        raise _refused(
            f"policy.retired_tiers ({origin})",
            f"{', '.join(both)} is a configured tier, so something is expected there",
            "take it out of policy.retired_tiers, or take its [[tier]] away",
        )


# --- the file -------------------------------------------------------------------------------------


def _read_file(named: str | None, environ: Mapping[str, str]) -> tuple[Path, dict[str, object]]:
    path = expanded(named, "--config").absolute() if named else default_file(environ)
    try:
        with path.open("rb") as stream:
            raw = stream.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        if named is None:
            return path, {}
        raise _refused(f"configuration file {path}", "there is no such file", "") from None
    except OSError as error:
        raise _refused(f"configuration file {path}", error.strerror or str(error), "") from error
    if len(raw) > FILE_BYTES_MAX:
        raise _refused(f"configuration file {path}", f"it is over {FILE_BYTES_MAX} bytes", "")
    if any(line.count(b".") > LINE_DOTS_MAX for line in raw.split(b"\n")):
        raise _refused(f"configuration file {path}", f"a line has over {LINE_DOTS_MAX} dots", "")
    try:
        return path, tomllib.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # bad UTF-8 and TOML, a number of too many digits
        why = f"it is not TOML: {error}"
        raise _refused(f"configuration file {path}", why, "correct that line") from None


def _flatten(table: Mapping[str, object], path: Path) -> Iterable[tuple[str, object]]:
    where = f"configuration file {path}"
    for name, value in table.items():
        if name == "tier":
            continue
        if name in SECTIONS:
            if not isinstance(value, dict):
                raise _refused(f"{where}: {name}", f"write a section: [{name}]", "")
            for short, inner in value.items():
                if f"{name}.{short}" not in BY_KEY:
                    raise _unknown(f"{where}: {name}.{short}", f"{name}.{short}", BY_KEY)
                yield f"{name}.{short}", inner
        elif name in BY_KEY:
            yield name, value
        elif isinstance(value, dict) and not _near(name, SECTIONS):
            why = f"it is no section, and no [[tier]] is of a kind {name}-... that would share it"
            raise _refused(f"{where}: {name}", why, "")
        else:
            raise _unknown(f"{where}: {name}", name, {*SECTIONS, "tier", "state_dir"})


def _families(table: Mapping[str, object]) -> dict[str, Mapping[str, object]]:
    """Sections of options that tiers share: `[mooncake]` for the kinds `mooncake-...`."""
    tiers = table.get("tier")
    kinds = [str(tier.get("kind")) for tier in _tables(tiers)] if isinstance(tiers, list) else []
    return {
        name: section
        for name, section in table.items()
        if isinstance(section, dict) and name not in SECTIONS
        if any(kind.startswith(f"{name}-") for kind in kinds)
    }


def _tables(values: list[object]) -> list[dict[str, object]]:
    return [value for value in values if isinstance(value, dict)]


def _tiers(
    tables: object, path: Path, families: Mapping[str, Mapping[str, object]]
) -> tuple[TierConfig, ...]:
    where = f"configuration file {path}: tier"
    if not isinstance(tables, list) or len(_tables(tables)) < len(tables):
        raise _refused(where, "tiers are written as [[tier]], one table each", "")
    tiers: dict[str, TierConfig] = {}
    for number, table in enumerate(tables, 1):
        name, kind = table.get("name"), table.get("kind")
        if not isinstance(name, str) or not _TIER_NAME.fullmatch(name):
            why = f"number {number} needs a name of a-z, 0-9, '-' and '_', up to 32 characters"
            raise _refused(where, why, "")
        if not isinstance(kind, str) or not kind:
            raise _refused(f"{where} {name}", "kind, the name of its plugin, is missing", "")
        if name in tiers:
            raise _refused(f"{where} {name}", "two tiers have this name", "")
        own = {key: value for key, value in table.items() if key not in _OF_TIER}
        options = {**families.get(kind.partition("-")[0], {}), **own}
        limits = _limits(table.get("limits", {}), f"{where} {name}: limits")
        tiers[name] = TierConfig(name=name, kind=kind, options=options, limits=limits)
    if not tiers:
        raise _refused(where, "the list is empty", "")
    return tuple(tiers.values())


def _limits(table: object, where: str) -> dict[str, object]:
    if not isinstance(table, dict):
        raise _refused(where, "write a section: [tier.limits]", "")
    known = {setting.key: setting for setting in TIER_LIMITS}
    limits = {}
    for key, value in table.items():
        if key not in known:
            raise _unknown(f"{where}: {key}", key, known)
        limits[key], _ = _checked(known[key], value, where)
    return limits


# --- environment and flags ------------------------------------------------------------------------


def _variables(environ: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    for variable in sorted(environ):
        if variable in BY_VARIABLE:
            yield variable, environ[variable]
        elif (
            variable.startswith(_PREFIX)
            and variable not in _OTHER_VARIABLES
            and not _SERVICE_LINK.fullmatch(variable)
        ):
            known = {*BY_VARIABLE, *_OTHER_VARIABLES}
            raise _unknown(f"environment variable {variable}", variable, known)


def _assignment(assignment: str) -> tuple[Setting, str]:
    key, separator, word = assignment.partition("=")
    if key not in BY_KEY:
        raise _unknown(f"flag --set {key}", key, BY_KEY)
    if not separator:
        raise _refused(f"flag --set {key}", "it has no value", f"write --set {key}=VALUE")
    return BY_KEY[key], word


def _checked(setting: Setting, value: object, origin: str) -> tuple[object, str]:
    try:
        return setting.parse(value), origin
    except ValueError as error:
        raise _refused(f"{setting.key} from {origin}", f"{error}, not {_said(value)}", "") from None


def _said(value: object) -> str:
    """A refused value for people, who do not want all of a large one."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # too many digits, or nested too deeply
        return "what is there"
    return text if len(text) <= _VALUE_CHARACTERS_MAX else f"{text[:_VALUE_CHARACTERS_MAX]}..."


# --- the state directory --------------------------------------------------------------------------


def _state_dir(
    value: object, origin: str, *, file: Path, environ: Mapping[str, str]
) -> tuple[str, str]:
    """Absolute and without links: the default memory folder is named after it."""
    if origin == _DEFAULT:
        return str(default_state_dir(environ)), _DEFAULT
    root = file.parent if origin.startswith("file ") else Path.cwd()
    try:
        return str((root / expanded(str(value), origin)).resolve()), origin
    except RuntimeError as error:  # links that go round
        raise _refused(f"state_dir from {origin}", str(error), "") from None


# --- refusals -------------------------------------------------------------------------------------


def _refused(what: str, why: str, todo: str) -> ConfigError:
    return ConfigError(what, f"{ConfigError.reason}: {why}", todo or "correct it and try again")


def _unknown(what: str, name: str, known: Iterable[str]) -> ConfigError:
    near = _near(name, known)
    todo = f"did you mean {near[0]}?" if near else "`weightctl config show` lists what is known"
    return ConfigError(what, f"{ConfigError.reason}: nothing of this name is known", todo)


def _near(name: str, known: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
