"""The asking end of the control socket: synchronous, standard library only.  Layer: api."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any, cast

from weightctl.controller.api import wire
from weightctl.controller.errors import UnknownOutcomeError, WeightctlError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weightctl.controller.api import documents as doc

CONNECT_S = 5.0
PATIENCE_S = 5.0
"""Beyond the asker's timeout, which a controller that is stopped does not keep."""


class RemoteError(WeightctlError):
    """What the running controller answered; `code` and `reason` are the original ones."""

    def __init__(self, error: doc.Error) -> None:
        super().__init__(error["what"], error["why"], error["todo"])
        self.code = error["code"]
        self.reason = error["reason"]  # type: ignore[misc]  # stands for another class


def connect(state_dir: str) -> socket.socket | None:
    """A connection to the controller that runs on this state directory, None when none does.

    A socket that a killed process left behind counts as none.
    """
    try:
        folder = wire.open_folder(state_dir)
    except OSError:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(CONNECT_S)
    try:
        connection.connect(wire.socket_path(folder))
    except OSError:
        connection.close()
        return None
    finally:
        os.close(folder)
    if not wire.is_trusted(connection):
        connection.close()
        return None
    connection.settimeout(None)
    return connection


def request(
    connection: socket.socket,
    verb: str,
    params: Mapping[str, Any],
    emit: Callable[[dict[str, Any]], None],
) -> doc.Document:
    """Send one request, pass every frame before the last to `emit`, and give the result.

    Closes the connection.  Raises RemoteError for a refusal and UnknownOutcomeError when the
    controller goes away before it has answered, or is silent for longer than `timeout_s` allows.
    """
    if params.get("timeout_s") is not None:
        connection.settimeout(params["timeout_s"] + PATIENCE_S)
    asked = {"version": wire.PROTOCOL_VERSION, "verb": verb, "params": dict(params)}
    try:
        with connection, connection.makefile("rb") as replies:
            connection.sendall(wire.encode(asked))
            while line := replies.readline(wire.REPLY_BYTES_MAX + 1):
                frame = wire.decode(line)
                if "result" in frame:
                    return _result(frame["result"])
                if "error" in frame:
                    raise RemoteError(_refusal(frame["error"]))
                emit(frame)
            why = "it closed the connection"
    except (OSError, ValueError) as error:
        why = str(error)
    raise UnknownOutcomeError(
        f"{verb} was sent to the running controller, its answer was lost",
        f"{UnknownOutcomeError.reason}: {why}",
        "look at the revision with `weightctl get` before trying again",
    )


def _result(found: object) -> doc.Document:
    """The document that was asked for.  Raises ValueError."""
    if not isinstance(found, dict):
        raise ValueError("the result is no document")  # noqa: TRY004 - bad input, not a bad call
    return cast("doc.Document", found)


def _refusal(found: object) -> doc.Error:
    """What the controller says of its failure.  Raises ValueError."""
    if (
        not isinstance(found, dict)
        or not all(isinstance(found.get(name), str) for name in ("reason", "what", "why", "todo"))
        or not isinstance(found.get("code", 0), str | None)
        or not found["what"]
    ):
        raise ValueError("the controller's refusal has another form than is known")
    return cast("doc.Error", found)
