"""`weightctl run`: the reconcile loop until it is stopped.  Layer: cli.

The first SIGTERM or Ctrl-C lets passes under way end within the drain time; a second one leaves at
once.  Everything that it says goes to stderr, through logging.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import anyio

from weightctl.controller.api.server import serve
from weightctl.controller.api.verbs import handle
from weightctl.controller.cli.calling import run_async
from weightctl.controller.cli.exit_codes import ExitCode
from weightctl.controller.cli.settings import load_config
from weightctl.controller.runtime.supervisor import stop_on_signals
from weightctl.controller.wiring import open_app

if TYPE_CHECKING:
    import argparse

    from weightctl.controller.cli.output import Console
    from weightctl.controller.config.loading import Config

READY = "ready"
"""The last word of the line that says that requests are answered."""
_LOG = logging.getLogger("weightctl.run")


def run(args: argparse.Namespace, console: Console) -> int:
    """Run until stopped."""
    del console
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level="INFO")
    config = load_config(args)
    run_async(partial(_run, config))
    return ExitCode.OK


async def _run(config: Config) -> None:
    async with open_app(config, loop=True) as app, anyio.create_task_group() as tasks:
        controller = app.loop()
        tasks.start_soon(stop_on_signals, controller.stop, controller.leave)
        await tasks.start(serve, config.state_dir, partial(handle, app))
        names = ", ".join(tier.profile.name for tier in app.tiers)
        _LOG.info("%s, term %d, tiers %s: %s", config.state_dir, app.store.term, names, READY)
        await controller.run_until_stopped()
        tasks.cancel_scope.cancel()
