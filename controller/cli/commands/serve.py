"""`weightctl run`: the reconcile loop until it is stopped.  Layer: cli.

The first SIGTERM or Ctrl-C lets passes under way end within the drain time; a second one leaves at
once; SIGHUP reads policy and limits again.  What it says goes to stderr, through logging.  A plugin
that never gives its turn back is interrupted; one that cannot be ends the process, by name.
"""

from __future__ import annotations

import logging
import os
import signal
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from weightctl.controller.api.server import serve
from weightctl.controller.api.verbs import handle
from weightctl.controller.cli.exit_codes import ExitCode
from weightctl.controller.cli.settings import load_config
from weightctl.controller.cli.watching import run_watched
from weightctl.controller.errors import WeightctlError
from weightctl.controller.runtime.garbage import collect_in_rounds
from weightctl.controller.runtime.supervisor import stop_on_signals
from weightctl.controller.telemetry.logs import JsonFormatter, LineFormatter
from weightctl.controller.wiring import exported_metrics, open_app, reload

if TYPE_CHECKING:
    import argparse

    from weightctl.controller.api.app import App
    from weightctl.controller.cli.output import Console
    from weightctl.controller.config.loading import Config

READY = "ready"
"""The last word of the line that says that requests are answered."""
_LOG = logging.getLogger("weightctl.run")


def run(args: argparse.Namespace, console: Console) -> int:
    """Run until stopped."""
    del console
    config = load_config(args)
    _log_as(config)
    run_watched(partial(_serve, args, config), config, may_write=True)
    return ExitCode.OK


async def _serve(args: argparse.Namespace, config: Config) -> None:
    async with (
        open_app(config, loop=True) as app,
        exported_metrics(config, app),
        anyio.create_task_group() as tasks,
    ):
        controller = app.loop()
        tasks.start_soon(collect_in_rounds, app.clock)
        tasks.start_soon(stop_on_signals, controller.stop, _leave_at_once)
        tasks.start_soon(_reload_on_signal, args, app)
        stopping = anyio.Event()
        async with anyio.create_task_group() as serving:
            answer = partial(serve, config.state_dir, partial(handle, app), stopping=stopping)
            await serving.start(answer)
            names = ", ".join(tier.profile.name for tier in app.tiers)
            _LOG.info("%s, term %d, tiers %s: %s", config.state_dir, app.store.term, names, READY)
            await controller.run_until_stopped()
            stopping.set()  # who waits over the socket is told before the process ends
        tasks.cancel_scope.cancel()


def _leave_at_once() -> None:
    """End the process even while a thread hangs in a medium; for the records it is a kill -9."""
    _LOG.warning("second signal: leaving at once; the next start goes on from the records")
    logging.shutdown()
    os._exit(ExitCode.ERROR)


async def _reload_on_signal(args: argparse.Namespace, app: App) -> None:
    """SIGHUP: read the configuration again; one that is refused changes nothing."""
    with anyio.open_signal_receiver(signal.SIGHUP) as received:
        async for _ in received:
            try:
                config = await to_thread.run_sync(load_config, args)
            except WeightctlError as error:
                _LOG.error("configuration not reloaded: %s", " ".join(str(error).split()))
            else:
                reload(app, config)
                _LOG.info("configuration reloaded: policy and limits of the tiers")


def _log_as(config: Config) -> None:
    """Everything that is said goes to stderr, one event a line."""
    chosen = config.section("log")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if chosen["format"] == "json" else LineFormatter())
    logging.basicConfig(handlers=[handler], level=str(chosen["level"]).upper())
