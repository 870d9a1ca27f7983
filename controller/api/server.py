"""The answering end of the control socket.  Layer: api.

Bounded in every direction: connections at once, bytes of a request, time to say it.  A request that
fails in an unforeseen way answers `Internal` and never takes the controller with it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread
from anyio.abc import SocketAttribute, SocketListener
from anyio.streams.buffered import BufferedByteReceiveStream
from pydantic import BaseModel, ConfigDict

from weightctl.controller.api import views, wire
from weightctl.controller.errors import ErrorCode, StoppingError, WeightctlError, WeightError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import SocketStream, TaskStatus

    from weightctl.controller.api import documents as doc

    Emit = Callable[[Mapping[str, Any]], None]
    Handler = Callable[[str, Mapping[str, Any], Emit], Awaitable[doc.Document]]
    Reading = dict[BufferedByteReceiveStream, anyio.CancelScope]

CONNECTIONS_MAX = 64
LINGER_S = 1.0
"""How long a client may take to close after it was told the end of the answer."""
GRACE_S = 1.0
"""How long a request may still take when the controller has stopped."""
_FRAMES_AHEAD = 64
_REQUEST = "the request on the control socket"
_NO_LINE = "it is not one JSON line of the protocol"
_log = logging.getLogger(__name__)


class InternalError(WeightctlError):
    """Something that should not happen did; the log has the trace."""

    reason = "Internal"


class Request(BaseModel):
    """The one line that a client sends."""

    model_config = ConfigDict(extra="forbid", strict=True)

    version: int
    verb: str
    params: dict[str, Any] = {}


async def serve(
    state_dir: str,
    handle: Handler,
    *,
    stopping: anyio.Event | None = None,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Answer requests until `stopping` is set; the caller holds the state directory's lock.

    `handle(verb, params, emit)` does one request; it is cancelled when its client goes away.  Once
    `stopping` is set nobody new is heard, who has said nothing yet is told so at once, and who
    still waits gets an answer within GRACE_S.
    """
    stopping = stopping or anyio.Event()
    folder = await to_thread.run_sync(wire.open_folder, state_dir)
    slots = anyio.CapacityLimiter(CONNECTIONS_MAX)
    reading: Reading = {}

    async def answer(stream: SocketStream) -> None:
        async with stream, slots:
            try:
                await _converse(stream, handle, stopping, reading)
            except* (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                _log.debug("a client of the control socket went away")

    name = 0
    try:
        bound, name = await to_thread.run_sync(_bind, folder)
        async with (
            await SocketListener.from_socket(bound) as listener,
            anyio.create_task_group() as talks,
            anyio.create_task_group() as listening,
        ):
            listening.start_soon(listener.serve, answer, talks)
            task_status.started()
            await stopping.wait()
            listening.cancel_scope.cancel()
            for lines, scope in reading.items():
                if not lines.buffer:
                    scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(_unbind, folder, name)
        os.close(folder)


def _bind(folder: int) -> tuple[socket.socket, int]:
    """Listen under another name first, so that nobody meets the socket before it is private.

    The inode of the name tells it from the one of a later controller.
    """
    path = wire.socket_path(folder)
    draft = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft)  # noqa: PTH108 - the path runs through a descriptor
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(draft)
        os.chmod(draft, 0o600)  # noqa: PTH101 - as above
        bound.listen(CONNECTIONS_MAX)
        bound.settimeout(0)
        name = os.lstat(draft).st_ino
        os.rename(draft, path)  # noqa: PTH104 - as above
    except BaseException:
        bound.close()
        raise
    return bound, name


def _unbind(folder: int, name: int) -> None:
    """Remove the socket's name, unless a controller that took over has put its own there."""
    path = wire.socket_path(folder)
    with contextlib.suppress(FileNotFoundError):
        if os.lstat(path).st_ino == name:
            os.unlink(path)  # noqa: PTH108 - as above


async def _converse(
    stream: SocketStream, handle: Handler, stopping: anyio.Event, reading: Reading
) -> None:
    if not wire.is_trusted(stream.extra(SocketAttribute.raw_socket)):  # noqa: S610 - not Django
        return
    lines = BufferedByteReceiveStream(stream)
    try:
        if stopping.is_set():
            raise _cut_short(_REQUEST)
        request = await _read(lines, reading)
    except WeightctlError as refusal:
        await stream.send(wire.encode({"error": views.error(refusal)}))
        return
    closed = anyio.Event()
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as waited_for:
            tasks.start_soon(_watch, lines, waited_for, closed)
            last = await _carry_out(stream, handle, request, stopping)
            await stream.send(_bounded(last))
            await stream.send_eof()
        # The client closes when it has read the answer.  Cancelling the watch instead would meet
        # that close half-way, which the event loop reports as an error in a callback.
        with anyio.move_on_after(LINGER_S):
            await closed.wait()
        tasks.cancel_scope.cancel()


async def _read(lines: BufferedByteReceiveStream, reading: Reading) -> Request:
    """The request; `reading` has its scope meanwhile, to be cancelled when the server stops."""
    line: bytes | None = None
    try:
        with anyio.fail_after(wire.REQUEST_DEADLINE_S) as reading[lines]:
            line = await lines.receive_until(b"\n", wire.REQUEST_BYTES_MAX)
    except (TimeoutError, anyio.DelimiterNotFound) as error:
        raise _refused(_REQUEST, f"{_NO_LINE}: {error}") from None
    except anyio.IncompleteRead:
        raise _refused(_REQUEST, "it ends in the middle") from None
    finally:
        del reading[lines]
    if line is None:
        raise _cut_short(_REQUEST)
    return parse_request(line)


def parse_request(line: bytes) -> Request:
    """The request that a line spells; its parameters are the verb's to check.

    Raises INVALID_ARGUMENT for what is no request of this protocol version.
    """
    try:
        request = Request.model_validate(wire.decode(line))
    except ValueError as error:  # pydantic's is one, too
        raise _refused(_REQUEST, f"{_NO_LINE}: {error}") from None
    if request.version != wire.PROTOCOL_VERSION:
        why = f"it speaks version {request.version}, this one {wire.PROTOCOL_VERSION}"
        raise _refused(_REQUEST, why)
    return request


async def _watch(
    lines: BufferedByteReceiveStream, waited_for: anyio.CancelScope, closed: anyio.Event
) -> None:
    """Nothing more is expected; whatever comes, even the end, means that nobody waits."""
    with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        await lines.receive(1)
    closed.set()
    waited_for.cancel()


async def _carry_out(
    stream: SocketStream, handle: Handler, request: Request, stopping: anyio.Event
) -> dict[str, Any]:
    """Run the handler, forwarding what it emits; a slow client loses progress, not the result."""
    last: dict[str, Any] = {"error": views.error(_cut_short(request.verb))}
    work, watch = anyio.CancelScope(), anyio.CancelScope()
    send, frames = anyio.create_memory_object_stream[Mapping[str, Any]](_FRAMES_AHEAD)

    def emit(frame: Mapping[str, Any]) -> None:
        with contextlib.suppress(anyio.WouldBlock):
            send.send_nowait(frame)

    async def forward() -> None:
        async with frames:
            async for frame in frames:
                await stream.send(wire.encode(frame))

    async def hurry() -> None:
        with watch:
            await stopping.wait()
            await anyio.sleep(GRACE_S)
            work.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(forward)
        tasks.start_soon(hurry)
        async with send:
            with work:
                last = await _outcome(handle, request, emit)
        watch.cancel()
    return last


def _cut_short(what: str) -> StoppingError:
    return StoppingError(
        f"{what} was not finished",
        f"{StoppingError.reason}: the controller is stopping",
        "look at the revision, then run the same command again: an import resumes",
    )


async def _outcome(handle: Handler, request: Request, emit: Emit) -> dict[str, Any]:
    try:
        return {"result": await handle(request.verb, request.params, emit)}
    except WeightctlError as failure:
        return {"error": views.error(failure)}
    except Exception as failure:  # noqa: BLE001 - logged; one request must not end the loop
        _log.exception("%s failed in an unforeseen way", request.verb)
        internal = InternalError(
            f"{request.verb} failed in the running controller",
            f"{InternalError.reason}: {type(failure).__name__}: {failure}",
            "see the log of `weightctl run`; look at the revision before trying again",
        )
        return {"error": views.error(internal)}


def _bounded(frame: dict[str, Any]) -> bytes:
    line = wire.encode(frame)
    if len(line) <= wire.REPLY_BYTES_MAX:
        return line
    why = f"it has {len(line)} bytes, the protocol carries {wire.REPLY_BYTES_MAX}"
    return wire.encode({"error": views.error(_refused("the answer", why))})


def _refused(what: str, why: str) -> WeightError:
    return WeightError(ErrorCode.INVALID_ARGUMENT, what, why, "use a weightctl of the same version")
