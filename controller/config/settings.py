"""The one table of settings.  Layer: config.

A setting `section.name` is `[section] name = ...` in the file, `WEIGHTCTL_SECTION_NAME` in the
environment and `--set section.name=...` on the command line.  The names of a section are the field
names of what it configures, so nothing has to be translated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from weightctl.controller.config import values
from weightctl.controller.core.policy import Policy
from weightctl.controller.core.records import LEASE_TTL_MS_MAX
from weightctl.controller.store.gate import CapabilityGate

if TYPE_CHECKING:
    from collections.abc import Callable

_DAY_S = 86_400
_ELEMENT_BYTES_MAX = 8
"""An object of an import holds one element at least."""
_POLICY = Policy()
_GATE = CapabilityGate()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting: how it is read, what it is when nobody sets it, what it is for."""

    key: str
    parse: Callable[[object], object]
    default: object
    about: str

    @property
    def variable(self) -> str:
        """Name of its environment variable."""
        return "WEIGHTCTL_" + self.key.replace(".", "_").upper()


def _setting(key: str, parse: Callable[[object], object], default: object, about: str) -> Setting:
    return Setting(key=key, parse=parse, default=default, about=about)


SETTINGS: tuple[Setting, ...] = (
    _setting(
        "state_dir",
        values.text,
        "",
        "where records, the op-log and the default cold tier live",
    ),
    _setting(
        "store.term_above",
        values.integer(0, 2**62),
        0,
        "only for a state directory that was put back from an older copy: the term that its tiers"
        " have served, as their refusal names it",
    ),
    _setting(
        "policy.tier_preference",
        values.names,
        _POLICY.tier_preference,
        "names of tiers in the order in which they are filled; the others follow, fastest first",
    ),
    _setting(
        "policy.cold_copies",
        values.integer(1, 16),
        _POLICY.cold_copies,
        "good cold copies of each member that a repair restores",
    ),
    _setting(
        "policy.auto_repair",
        values.flag,
        _POLICY.auto_repair,
        "true: the loop itself restores them, from what is left, when a revision has fewer",
    ),
    _setting(
        "policy.evidence_max_age_s",
        values.seconds(1, 30 * _DAY_S),
        _POLICY.evidence_max_age_s,
        "how long a read-back copy justifies dropping another one",
    ),
    _setting(
        "policy.settle_s",
        values.seconds(0, _DAY_S),
        _POLICY.settle_s,
        "how long an observation must stay the same after a tier forgot or much changed at once",
    ),
    _setting(
        "policy.mass_change_share",
        values.share,
        _POLICY.mass_change_share,
        "share of a group's members whose state may change at once without settling first",
    ),
    _setting(
        "policy.import_abandon_ms",
        values.milliseconds(1_000, LEASE_TTL_MS_MAX),
        _POLICY.import_abandon_ms,
        "an import whose writer was not heard of for this long is removed, and its name is used up",
    ),
    _setting(
        "policy.pass_members_max",
        values.integer(1, 1_000_000),
        _POLICY.pass_members_max,
        "members that one pass over a revision works on",
    ),
    _setting(
        "policy.pass_bytes_max",
        values.size(1),
        _POLICY.pass_bytes_max,
        "bytes that one pass over a revision moves",
    ),
    _setting(
        "policy.windows",
        values.windows,
        _POLICY.windows,
        "daily UTC windows in which bytes are moved or dropped, such as 22:00-06:00; empty: always",
    ),
    _setting("policy.paused", values.flag, _POLICY.paused, "true: nothing is moved or dropped"),
    _setting(
        "policy.retired_tiers",
        values.names,
        _POLICY.retired_tiers,
        "former tiers whose media are gone; a deletion waits for any other that it cannot ask",
    ),
    _setting(
        "policy.members_budget",
        values.integer(1, 1_000_000_000),
        _POLICY.members_budget,
        "members of one revision beyond which plans warn of their number",
    ),
    _setting(
        "lease.ttl_ms",
        values.milliseconds(1, LEASE_TTL_MS_MAX),
        60_000,
        "how long a lease lives unless it is renewed",
    ),
    _setting(
        "import.payload_bytes",
        values.size(_ELEMENT_BYTES_MAX),
        64 * 1024**2,
        "largest object of an import; resuming one needs the same value",
    ),
    _setting(
        "import.workers",
        values.integer(1, 64),
        4,
        "objects that are hashed or copied at the same time",
    ),
    _setting(
        "import.busy_s",
        values.seconds(0, _DAY_S),
        60.0,
        "how long an import waits for an object that somebody else is writing",
    ),
    _setting(
        "run.slots", values.integer(1, 1024), 8, "revisions that are worked on at the same time"
    ),
    _setting(
        "run.drain_s",
        values.seconds(0, _DAY_S),
        20.0,
        "how long passes under way may take to end after SIGTERM",
    ),
    _setting(
        "run.stuck_after_s",
        values.seconds(1, _DAY_S),
        600.0,
        "a revision of which nothing has moved for this long is called stuck",
    ),
    _setting(
        "resync.working_s",
        values.seconds(1, _DAY_S),
        30.0,
        "how often records with unfinished work are looked at without being asked",
    ),
    _setting(
        "resync.published_s",
        values.seconds(1, 30 * _DAY_S),
        600.0,
        "how often idle published records are looked at (drift)",
    ),
    _setting(
        "observer.deadline_s",
        values.seconds(0.1, 3600),
        5.0,
        "a tier that has not answered by then is unknown",
    ),
    _setting(
        "executor.deadline_s",
        values.seconds(0.1, _DAY_S),
        60.0,
        "a batch of work that has not ended by then, and 2 s more for each MiB in it, is unknown",
    ),
    _setting(
        "plugins.turn_s",
        values.seconds(0.1, 3600),
        10.0,
        "a tier's code that keeps a process from all else for this long is interrupted",
    ),
    _setting(
        "ha.enable_ha",
        values.flag,
        _GATE.enable_ha,
        "true: standbys wait to take over from this process",
    ),
    _setting(
        "ha.enable_oplog",
        values.flag,
        _GATE.enable_oplog,
        "true: standbys replay the op-log",
    ),
    _setting(
        "ha.backend",
        values.one_of("none", "etcd"),
        _GATE.backend,
        "where standbys read the op-log from",
    ),
    _setting(
        "ha.weight_management_oplog_capability_confirmed",
        values.flag,
        _GATE.weight_management_oplog_capability_confirmed,
        "true: every standby understands op-log types 8 to 11; until then, with the three settings"
        " above on etcd, every change of a revision, lease or operation is refused",
    ),
    _setting(
        "log.level",
        values.one_of("debug", "info", "warning", "error"),
        "info",
        "what `weightctl run` logs at least",
    ),
    _setting(
        "log.format", values.one_of("line", "json"), "line", "one event a line, as text or JSON"
    ),
    _setting(
        "telemetry.otlp_endpoint",
        values.optional_text,
        "",
        "URL that metrics are sent to (OTLP over HTTP); empty: none are",
    ),
    _setting("telemetry.interval_s", values.seconds(1, 3600), 15.0, "how often metrics are sent"),
)

TIER_LIMITS: tuple[Setting, ...] = (
    _setting("concurrency", values.integer(1, 1024), 4, "batches at the same time"),
    _setting("bytes_in_flight", values.size(1), 1024**3, "bytes of all batches under way"),
    _setting("bandwidth_bytes_per_s", values.size(1), None, "none: as fast as the tier is"),
)
"""What `[tier.limits]` after a `[[tier]]` may hold; charged at both ends of a copy."""

BY_KEY = {setting.key: setting for setting in SETTINGS}
BY_VARIABLE = {setting.variable: setting for setting in SETTINGS}
SECTIONS = frozenset(key.partition(".")[0] for key in BY_KEY if "." in key)
