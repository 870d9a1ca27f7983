"""Carrying out a verb: in the running controller when there is one, else here.  Layer: cli.

A second process never opens a held state directory: it asks the holder over the control socket.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from weightctl.controller.api import client
from weightctl.controller.cli.settings import load_config
from weightctl.controller.core.identity import is_u64
from weightctl.controller.errors import StateDirectoryHeldError, WeightctlError

if TYPE_CHECKING:
    import argparse
    import socket
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from weightctl.controller.api import documents as doc
    from weightctl.controller.cli.output import Console
    from weightctl.controller.cli.progress import Progress
    from weightctl.controller.config.loading import Config

    T = TypeVar("T")

HOLDER_LOOKS = 20
HOLDER_LOOK_S = 0.1
"""A `weightctl run` that is starting holds the directory a moment before it listens."""


def call(
    args: argparse.Namespace,
    console: Console,
    verb: str,
    params: Mapping[str, Any],
    *,
    loop: bool = False,
) -> doc.Document:
    """Do one verb that acts; `loop` runs the reconcile loop for it where no controller runs."""
    config = load_config(args)
    with console.progress() as progress, _told_when_interrupted(console, progress, params):
        emit = _emitter(console, progress)
        connection = client.connect(config.state_dir)
        if connection is None:
            try:
                return _here(config, verb, params, emit, loop=loop)
            except StateDirectoryHeldError:
                connection = _patient_connection(config)
                if connection is None:
                    raise
        return client.request(connection, verb, params, emit)


@contextmanager
def _told_when_interrupted(
    console: Console, progress: Progress, params: Mapping[str, Any]
) -> Iterator[None]:
    """Say that Ctrl-C ended the waiting only, once there was something to wait for."""
    try:
        yield
    except KeyboardInterrupt:
        progress.clear()
        if params.get("wait") and progress.begun:
            console.note(
                "no longer waiting; the operation is recorded: `weightctl run`, or the same verb"
                " with --wait, carries it on"
            )
        raise


def survey(
    args: argparse.Namespace, console: Console, verb: str, params: Mapping[str, Any]
) -> doc.Document:
    """Do one verb that only looks at the tiers; without a controller nothing at all is written."""
    config = load_config(args)
    connection = client.connect(config.state_dir)
    if connection is None:
        from weightctl.controller import wiring
        from weightctl.controller.cli.watching import run_watched
        from weightctl.controller.store.reading import unmoved

        return unmoved(lambda: run_watched(lambda: wiring.survey(config, verb, params), config))
    with console.progress() as progress:
        return client.request(connection, verb, params, _emitter(console, progress))


def run_async(main: Callable[[], Awaitable[T]]) -> T:
    """Run an event loop to the end of `main`.

    A failure of weightctl leaves as itself, also when a task group has wrapped it.
    """
    import anyio

    try:
        return anyio.run(main, backend_options={"use_uvloop": True})
    except BaseExceptionGroup as group:
        for error in _leaves(group):
            if isinstance(error, WeightctlError | KeyboardInterrupt):
                raise error from group
        raise


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _patient_connection(config: Config) -> socket.socket | None:
    """A connection to whoever holds the directory, once it listens."""
    for _ in range(HOLDER_LOOKS):
        time.sleep(HOLDER_LOOK_S)
        connection = client.connect(config.state_dir)
        if connection is not None:
            return connection
    return None


def _here(
    config: Config,
    verb: str,
    params: Mapping[str, Any],
    emit: Callable[[Mapping[str, Any]], None],
    *,
    loop: bool,
) -> doc.Document:
    from weightctl.controller.api.verbs import handle_alone
    from weightctl.controller.cli.watching import run_watched
    from weightctl.controller.wiring import open_app

    async def main() -> doc.Document:
        async with open_app(config, loop=loop) as app:
            return await handle_alone(app, verb, params, emit)

    return run_watched(main, config, may_write=True)


def _emitter(console: Console, progress: Progress) -> Callable[[Mapping[str, Any]], None]:
    """Shows frames of the forms that this version knows; others are left out."""

    def emit(frame: Mapping[str, Any]) -> None:
        said, note = frame.get("progress"), frame.get("note")
        if _is_progress(said):
            progress.update(
                said["stage"],
                said["done"],
                said["total"],
                unit=said["unit"],
                waits=said.get("waits", ""),
            )
        elif isinstance(note, str):
            progress.clear()
            console.note(note)

    return emit


def _is_progress(said: object) -> TypeGuard[dict[str, Any]]:
    return (
        isinstance(said, dict)
        and all(isinstance(said.get(name), str) for name in ("stage", "unit"))
        and all(is_u64(said.get(name)) for name in ("done", "total"))
        and isinstance(said.get("waits", ""), str)
    )
