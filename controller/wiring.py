"""The composition root: from a configuration to open parts.  Layer: wiring.

The only place that knows which classes stand behind the ports.  Tiers are found by entry point; one
whose plugin is broken is named and stands in the list as a tier that never answers, so that the
others go on and nothing of it is ever taken for absent.
"""

from __future__ import annotations

import difflib
import logging
import os
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
from anyio import to_thread

from weightctl.controller.api import examining, requests, surveys
from weightctl.controller.api.app import App
from weightctl.controller.api.planning import Planning
from weightctl.controller.api.surveys import StoredRecords
from weightctl.controller.clock import SystemClock, SystemEntropy
from weightctl.controller.config.loading import FAILPOINTS_VARIABLE
from weightctl.controller.core.tiers import TierProfile, refusal_of
from weightctl.controller.errors import ConfigError, StateDirectoryError, WeightctlError
from weightctl.controller.ports import TierContext
from weightctl.controller.runtime.admission import TierLimits
from weightctl.controller.runtime.answers import shown
from weightctl.controller.runtime.border import METHODS, BorderedTier
from weightctl.controller.runtime.controller import Controller
from weightctl.controller.runtime.fields import flaw_of
from weightctl.controller.runtime.holding import HeldUpError, Owner, running
from weightctl.controller.runtime.interrupts import is_ctrl_c
from weightctl.controller.runtime.leftout import LeftOut
from weightctl.controller.runtime.limits import TokenBucket
from weightctl.controller.runtime.observer import ObserverOptions
from weightctl.controller.runtime.settings import ExecutorOptions, ResyncOptions, RuntimeSettings
from weightctl.controller.runtime.silent import SilentTier
from weightctl.controller.store.connection import Connect, connect
from weightctl.controller.store.database import DATABASE_NAME, read_header
from weightctl.controller.store.gate import CapabilityGate
from weightctl.controller.store.lock import holder_of
from weightctl.controller.store.reading import open_reader, read_state
from weightctl.controller.store.store import WeightMetadataStore
from weightctl.controller.weightstore.facade import WeightStore
from weightctl.controller.weightstore.options import WeightStoreOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from importlib.metadata import EntryPoint

    from opentelemetry.sdk.metrics.export import MetricExporter

    from weightctl.controller.api import documents as doc
    from weightctl.controller.config.loading import Config, TierConfig
    from weightctl.controller.ports import Clock, Fence, Limiter, Tier, TierFactory

TIER_GROUP = "weightctl.tiers"
_log = logging.getLogger(__name__)


def _as_it_is(tier: Tier) -> Tier:
    return tier


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seams:
    """Where failpoints are put in; as it stands, nothing is."""

    connect: Connect = connect
    tier: Callable[[Tier], Tier] = _as_it_is


def _seams(config: Config) -> _Seams:
    """Raises ConfigError for a failpoint that there is not."""
    if FAILPOINTS_VARIABLE not in os.environ:
        return _Seams()
    from weightctl.controller.failpoints.files import watch_files
    from weightctl.controller.failpoints.journal import connect_with
    from weightctl.controller.failpoints.points import Failpoints, known_names
    from weightctl.controller.failpoints.tiers import FailpointTier

    names = known_names([tier.name for tier in config.tiers])
    points = Failpoints(os.environ[FAILPOINTS_VARIABLE], names)
    watch_files(points)
    return _Seams(
        connect=partial(connect_with, points), tier=lambda tier: FailpointTier(tier, points)
    )


@asynccontextmanager
async def open_tiers(
    config: Config,
    *,
    holder: str,
    read_only: bool,
    fence: Fence | None = None,
    seam: Callable[[Tier], Tier] = _as_it_is,
) -> AsyncIterator[tuple[Tier, ...]]:
    """Every configured tier, entered, in the configuration's order.

    holder: uuid of the store for which they are opened; read_only: nothing is created, changed or
    removed in any of them; fence: for whom they will act; seam: what stands around each plugin's,
    inside the border.  Raises ConfigError for a kind that no plugin has or several have, an unknown
    option, or a plugin of another API version.
    """
    context = TierContext(
        clock=SystemClock(),
        entropy=SystemEntropy(),
        state_dir=config.state_dir,
        read_only=read_only,
        holder=holder,
        fence=fence,
    )
    strangers = set(config.policy().tier_preference) - {tier.name for tier in config.tiers}
    if strangers:
        named = ", ".join(sorted(strangers))
        _log.warning("policy.tier_preference names %s, which is no configured tier", named)
    plugins = plugin_points()
    left_out = await to_thread.run_sync(LeftOut, config.state_dir)
    built = [_build(tier, plugins, context, left_out, seam) for tier in config.tiers]
    async with AsyncExitStack() as stack:
        entered: dict[str, Tier] = {}

        async def enter(tier: Tier) -> None:
            entered[tier.profile.name] = await _enter(tier, stack)

        async with anyio.create_task_group() as group:  # one that hangs delays no other
            for tier in built:
                group.start_soon(enter, tier)
        yield tuple(entered[tier.profile.name] for tier in built)


def plugin_points() -> dict[str, list[EntryPoint]]:
    """Every installed plugin by its kind, sorted; a kind with several of them has none to use."""
    found: dict[str, list[EntryPoint]] = {}
    for point in sorted(entry_points(group=TIER_GROUP), key=lambda one: (one.name, one.value)):
        found.setdefault(point.name, []).append(point)
    return found


def ambiguity_of(points: list[EntryPoint]) -> tuple[str, str]:
    """Why one kind with several plugins cannot be used, and what to do."""
    owners = [point.dist.name if point.dist else "an unnamed package" for point in points]
    told = [f"{owner} ({point.value})" for owner, point in zip(owners, points, strict=True)]
    why = f"the kind {points[0].name!r} is brought by {' and by '.join(told)}"
    return why, f"keep one of {' and '.join(owners)}, and uninstall the rest or rename its kind"


def _build(
    tier: TierConfig,
    plugins: dict[str, list[EntryPoint]],
    context: TierContext,
    left_out: LeftOut,
    seam: Callable[[Tier], Tier],
) -> Tier:
    if tier.kind not in plugins:
        near = difflib.get_close_matches(tier.kind, list(plugins), n=1, cutoff=0.0)
        raise ConfigError(
            f"tier {tier.name}",
            f"{ConfigError.reason}: no plugin is called {tier.kind!r}",
            f"did you mean {near[0]}?" if near else "install the package that brings it",
        )
    point, *others = plugins[tier.kind]
    if others:
        why, todo = ambiguity_of([point, *others])
        raise ConfigError(f"tier {tier.name}", f"{ConfigError.reason}: {why}", todo)
    unknown = TierProfile(name=tier.name, kind=tier.kind, hot=False)
    owner = owner_of(tier.name, point)
    if why := left_out.why(owner):
        return _silent(unknown, f"plugin {point.value}: {why}")
    try:
        with running(owner):
            factory = cast("TierFactory", point.load())
            made = factory(tier.name, tier.options, context)
            profile = made.profile
    except WeightctlError:
        raise
    except HeldUpError as error:
        why = f"it held up the process until it was interrupted at {error}"
        return _silent(unknown, f"plugin {point.value}: {why}")
    except BaseException as error:  # foreign code, which may even try to exit
        if is_ctrl_c(error):
            raise
        return _silent(unknown, f"plugin {point.value}: {shown(error)}")
    if refusal := _refusal(profile):
        raise ConfigError(
            f"tier {tier.name}",
            f"{ConfigError.reason}: plugin {point.value}: {refusal}",
            "install the plugin's version for this weightctl, or the weightctl that it needs",
        )
    if flaw := _flaw(made, profile, tier.name):
        return _silent(unknown, f"plugin {point.value}: {flaw}")
    return BorderedTier(seam(made), profile, context.clock, owner=owner)


def owner_of(name: str, point: EntryPoint) -> Owner:
    """Whose code a plugin is, for who watches it."""
    package = f"{point.dist.name} {point.dist.version}" if point.dist else ""
    return Owner(name=name, plugin=point.value, package=package)


def _refusal(profile: object) -> str:
    """Asked before `_flaw`: what was written for another version may rightly have other methods."""
    return refusal_of(profile.api_version) if isinstance(profile, TierProfile) else ""


def _flaw(made: Tier, profile: object, name: str) -> str:
    """Why what a plugin's factory made is no tier; empty when it is one."""
    if not isinstance(profile, TierProfile):
        return f"its profile is a {type(profile).__name__}, not a TierProfile"
    if profile.name != name:
        return f"it calls itself {shown(profile.name)}, not {name}"
    missing = [method for method in METHODS if not callable(getattr(made, method, None))]
    if missing:
        return f"it has no {', '.join(missing)}"
    if flaw := flaw_of(profile) or flaw_of(profile.capabilities):
        return flaw
    if not (profile.hot or profile.capabilities.persistent):
        return "it is cold and not persistent: a copy there would justify drops, and be forgotten"
    return ""


async def _enter(tier: Tier, stack: AsyncExitStack) -> Tier:
    profile = tier.profile
    try:
        return await stack.enter_async_context(tier)
    except WeightctlError as error:
        problem = "; ".join(part for part in (error.what, error.why, error.todo) if part)
    return _silent(profile, problem)


def _silent(profile: TierProfile, problem: str) -> Tier:
    _log.error("tier %s cannot be used: %s", profile.name, problem)
    return SilentTier(profile, problem)


@asynccontextmanager
async def open_app(config: Config, *, loop: bool) -> AsyncIterator[App]:
    """Store, tiers and facade, open for writing; with `loop` the reconcile loop runs beside.

    Raises StateDirectoryHeldError when another process holds the state directory.
    """
    clock, entropy, seams = SystemClock(), SystemEntropy(), _seams(config)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(
            WeightMetadataStore.open(
                config.state_dir,
                clock=clock,
                entropy=entropy,
                gate=CapabilityGate(**config.section("ha")),
                connect=seams.connect,
                **config.section("store"),
            )
        )
        tiers = await stack.enter_async_context(
            open_tiers(
                config,
                holder=store.holder,
                read_only=False,
                fence=store.fence,
                seam=seams.tier,
            )
        )
        controller: Controller | None = None
        if loop:
            controller = await stack.enter_async_context(
                Controller(
                    store,
                    tiers,
                    clock=clock,
                    entropy=entropy,
                    policy=config.policy(),
                    settings=runtime_settings(config),
                )
            )
        yield App(
            store=store,
            tiers=tiers,
            weights=WeightStore(
                store,
                tiers,
                clock=clock,
                entropy=entropy,
                options=WeightStoreOptions(**config.section("import")),
                limits=_bandwidths(config, clock) if controller is None else controller.bandwidths,
            ),
            clock=clock,
            policy=config.policy(),
            lease_ttl_ms=int(config.section("lease")["ttl_ms"]),
            controller=controller,
        )


def _bandwidths(config: Config, clock: Clock) -> dict[str, Limiter]:
    """The bandwidth of each tier where no loop has them."""
    limits = runtime_settings(config).tiers
    return {
        name: TokenBucket(clock, limit.bandwidth_bytes_per_s)
        for name, limit in limits.items()
        if limit.bandwidth_bytes_per_s is not None
    }


def runtime_settings(config: Config) -> RuntimeSettings:
    """The sections `run`, `resync`, `observer`, `executor` and the limits of each tier."""
    return RuntimeSettings(
        **config.section("run"),
        resync=ResyncOptions(**config.section("resync")),
        observer=ObserverOptions(**config.section("observer")),
        executor=ExecutorOptions(**config.section("executor")),
        tiers={tier.name: TierLimits(**tier.limits) for tier in config.tiers},
    )


def reload(app: App, config: Config) -> None:
    """Use another policy and other limits of the tiers from now on; the rest needs a restart."""
    app.policy = config.policy()
    app.loop().set_policy(app.policy)
    app.loop().set_limits(runtime_settings(config).tiers)


@asynccontextmanager
async def exported_metrics(config: Config, app: App) -> AsyncIterator[None]:
    """Send metrics for the length of the block, where the configuration says where to.

    Raises ConfigError when the exporter is not installed.
    """
    exporter = metric_exporter(config)
    if exporter is None:
        yield
        return
    from weightctl.controller.telemetry.export import exporting

    interval_s = float(config.section("telemetry")["interval_s"])
    async with exporting(app.loop().metrics.samples, exporter, interval_s=interval_s):
        yield


def metric_exporter(config: Config) -> MetricExporter | None:
    """What sends metrics; None where none are wanted.  Raises ConfigError: it is not installed."""
    endpoint = str(config.values["telemetry.otlp_endpoint"])
    if not endpoint:
        return None
    try:
        found = import_module("opentelemetry.exporter.otlp.proto.http.metric_exporter")
    except ImportError as error:
        raise ConfigError(
            "telemetry.otlp_endpoint", f"{ConfigError.reason}: {error}", "install weightctl[otel]"
        ) from error
    exporter: MetricExporter = found.OTLPMetricExporter(endpoint=endpoint)
    return exporter


async def survey(config: Config, verb: str, params: Mapping[str, Any]) -> doc.Document:
    """A plan, a dry run or the tier list, from a state directory that nobody has to hold.

    Nothing is written anywhere.  `verb` and `params` are those of the control socket.  It is for a
    process that does nothing else: the state is read on the loop.
    """
    if verb == "tiers":
        holder = _recorded_holder(config.state_dir)
        async with open_tiers(config, holder=holder, read_only=True) as tiers:
            return await examining.tiers(requests.check(verb, params), tiers, config.policy())
    options = WeightStoreOptions(**config.section("import"))
    if verb in {"adopt", "import"} and not (Path(config.state_dir) / DATABASE_NAME).exists():
        # What is adopted may be another store's until it is claimed; what is imported may not.
        holder = "" if verb == "adopt" else _recorded_holder(config.state_dir)
        async with open_tiers(config, holder=holder, read_only=True) as tiers:
            if verb == "adopt":
                return await surveys.adoptable(tiers, SystemClock(), params)
            return await surveys.importable(tiers, options, SystemClock(), params)
    attended = bool(holder_of(Path(config.state_dir)))
    with read_state(config.state_dir) as stored:
        if stored.problem:
            _log.warning("shown is the state before the damage: %s", stored.problem)
        async with open_tiers(config, holder=stored.holder, read_only=True) as tiers:
            planning = Planning(
                records=StoredRecords(stored),
                tiers=tiers,
                policy=config.policy(),
                clock=SystemClock(),
                attended=attended,
                import_options=options,
            )
            return await surveys.survey(planning, verb, params)


def _recorded_holder(state_dir: str) -> str:
    """The uuid of the store in that directory; empty, so that tiers answer, where it is damaged.

    A store that is not there yet will have a uuid that no medium has as its owner.
    """
    folder = Path(state_dir)
    if not (folder / DATABASE_NAME).exists():
        return SystemEntropy().token(16)
    try:
        with open_reader(folder) as (connection, path):
            return read_header(connection, path).store_id
    except StateDirectoryError:
        return ""
