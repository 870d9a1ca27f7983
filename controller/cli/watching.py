"""An event loop that no tier's code can hold up for ever or end.  Layer: cli.

Every process that runs code of tiers runs it in here: one that never gives its turn back is
interrupted; one that cannot be ends the process, by name.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from weightctl.controller.cli.calling import run_async
from weightctl.controller.cli.exit_codes import ExitCode
from weightctl.controller.config.settings import BY_KEY
from weightctl.controller.runtime.begun import contained
from weightctl.controller.runtime.holding import last_words, watched
from weightctl.controller.runtime.leftout import leave_out

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weightctl.controller.config.loading import Config
    from weightctl.controller.runtime.holding import Owner

    T = TypeVar("T")

_TURN = "plugins.turn_s"


def run_watched(
    main: Callable[[], Awaitable[T]], config: Config | None, *, may_write: bool = False
) -> T:
    """Run an event loop to the end of `main`; the limit is the setting's, or its default.

    may_write: what ends the process is noted in the state directory, for the next start.
    """
    turn_s = BY_KEY[_TURN].default if config is None else config.values[_TURN]
    state_dir = config.state_dir if config is not None and may_write else ""

    async def run() -> T:
        with contained(), watched(float(str(turn_s)), partial(_end, state_dir)):
            return await main()

    return run_async(run)


def _end(state_dir: str, owner: Owner, stack: str) -> None:
    """End the process although its main thread is not to be had; logging might wait for it."""
    left_out = "nothing was changed"
    if state_dir:
        try:
            left_out = f"the next start leaves it out: {leave_out(state_dir, owner, stack)}"
        except OSError as error:
            left_out = f"that could not be noted for the next start: {error}"
    what = f"tier {owner.name} (plugin {owner.plugin}, {owner.package or 'of no package'})"
    last_words(
        f"{what}: it holds up the process and cannot be interrupted; {left_out}\n{stack}",
        ExitCode.HELD_UP,
    )
