"""The control socket: one request a connection, bounded, for this user only."""

import json
import logging
import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from weightctl.controller.api import client, wire
from weightctl.controller.api.server import serve
from weightctl.controller.core.identity import parse_identity
from weightctl.controller.core.refusals import not_ready
from weightctl.controller.errors import UnknownOutcomeError

IDENTITY = parse_identity("prod/m/v1@1")


class Handler:
    """Echoes its parameters; `slow` waits for ever and tells when it was cancelled."""

    def __init__(self) -> None:
        self.cancelled = anyio.Event()

    async def __call__(
        self, verb: str, params: Mapping[str, Any], emit: Callable[[Mapping[str, Any]], None]
    ) -> Any:
        if verb == "refuse":
            raise not_ready(IDENTITY, "it is a test")
        if verb == "break":
            raise ZeroDivisionError
        if verb == "flood":
            for number in range(100_000):
                emit({"progress": {"done": number}})
        if verb == "slow":
            try:
                await anyio.sleep_forever()
            finally:
                self.cancelled.set()
        if verb == "huge":
            return {"kind": "Echo", "text": "x" * wire.REPLY_BYTES_MAX}
        emit({"progress": {"done": 1}})
        return {"kind": "Echo", "verb": verb, **params}


async def ask(state_dir: Path, verb: str, **params: Any) -> tuple[Any, list[Any]]:
    frames: list[Any] = []

    def blocking() -> Any:
        connection = client.connect(str(state_dir))
        assert connection is not None
        return client.request(connection, verb, params, frames.append)

    return await to_thread.run_sync(blocking), frames


async def raw(state_dir: Path, sent: bytes) -> dict[str, Any]:
    """Send bytes as they are and give the one frame that comes back."""
    async with await anyio.connect_unix(state_dir / wire.SOCKET_NAME) as stream:
        await stream.send(sent)
        await stream.send_eof()
        answer = b""
        async for piece in stream:
            answer += piece
    return dict(json.loads(answer))


async def test_a_request_gets_progress_and_its_result(tmp_path: Path) -> None:
    async with anyio.create_task_group() as tasks:
        await tasks.start(serve, str(tmp_path), Handler())
        result, frames = await ask(tmp_path, "echo", identity="a/b/c@1")
        assert result == {"kind": "Echo", "verb": "echo", "identity": "a/b/c@1"}
        assert frames == [{"progress": {"done": 1}}]
        tasks.cancel_scope.cancel()


async def test_the_socket_is_private_and_is_removed_at_the_end(tmp_path: Path) -> None:
    async with anyio.create_task_group() as tasks:
        await tasks.start(serve, str(tmp_path), Handler())
        status = await anyio.Path(tmp_path / wire.SOCKET_NAME).stat()
        assert status.st_mode & 0o777 == 0o600
        tasks.cancel_scope.cancel()
    assert not await anyio.Path(tmp_path / wire.SOCKET_NAME).exists()


async def test_a_refusal_keeps_its_code_and_its_three_parts(tmp_path: Path) -> None:
    async with anyio.create_task_group() as tasks:
        await tasks.start(serve, str(tmp_path), Handler())
        with pytest.raises(client.RemoteError) as caught:
            await ask(tmp_path, "refuse")
        tasks.cancel_scope.cancel()
    refusal = not_ready(IDENTITY, "it is a test")
    assert caught.value.code == "NOT_READY"
    assert (caught.value.what, caught.value.why) == (refusal.what, refusal.why)


async def test_a_handler_that_breaks_answers_and_the_server_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with anyio.create_task_group() as tasks:
        await tasks.start(serve, str(tmp_path), Handler())
        with caplog.at_level(logging.ERROR), pytest.raises(client.RemoteError) as caught:
            await ask(tmp_path, "break")
        assert (caught.value.reason, caught.value.code) == ("Internal", None)
        assert "ZeroDivisionError" in caplog.text
        assert (await ask(tmp_path, "echo"))[0]["verb"] == "echo"
        tasks.cancel_scope.cancel()


async def test_a_client_that_goes_away_cancels_its_request(tmp_path: Path) -> None:
    handler = Handler()
    async with anyio.create_task_group() as tasks:
        await tasks.start(serve, str(tmp_path), handler)
        stream = await anyio.connect_unix(tmp_path / wire.SOCKET_NAME)
        await stream.send(wire.encode({"version": 1, "verb": "slow"}))
        await anyio.wait_all_tasks_blocked()
        await stream.aclose()
        with anyio.fail_after(240):
            await handler.cancelled.wait()
        tasks.cancel_scope.cancel()


async def test_too_much_progress_is_dropped_and_the_result_is_not(tmp_path: Path) -> None:
    async with anyio.create_task_group() as tasks:
        await tasks.start(serve, str(tmp_path), Handler())
        result, frames = await ask(tmp_path, "flood")
        assert result["verb"] == "flood"
        assert len(frames) < 1000
        tasks.cancel_scope.cancel()


async def test_an_answer_over_the_limit_is_refused_and_not_cut(tmp_path: Path) -> None:
    async with anyio.create_task_group() as tasks:
        await tasks.start(serve, str(tmp_path), Handler())
        with pytest.raises(client.RemoteError, match="the answer"):
            await ask(tmp_path, "huge")
        tasks.cancel_scope.cancel()


async def test_the_connection_is_closed_after_the_last_line(tmp_path: Path) -> None:
    """Also for a client that goes on listening."""
    async with anyio.create_task_group() as tasks:
        await tasks.start(serve, str(tmp_path), Handler())
        async with await anyio.connect_unix(tmp_path / wire.SOCKET_NAME) as stream:
            await stream.send(wire.encode({"version": 1, "verb": "echo"}))
            with anyio.fail_after(240):
                answer = b"".join([piece async for piece in stream])
        assert b"result" in answer.splitlines()[-1]
        tasks.cancel_scope.cancel()


async def test_who_still_waits_when_the_controller_stops_gets_an_answer(tmp_path: Path) -> None:
    stopping, handler = anyio.Event(), Handler()
    async with anyio.create_task_group() as tasks:
        await tasks.start(partial(serve, str(tmp_path), handler, stopping=stopping))
        async with await anyio.connect_unix(tmp_path / wire.SOCKET_NAME) as stream:
            await stream.send(wire.encode({"version": 1, "verb": "slow"}))
            await anyio.wait_all_tasks_blocked()
            stopping.set()
            with anyio.fail_after(240):
                answer = b"".join([piece async for piece in stream])
        assert json.loads(answer)["error"]["reason"] == "Stopping"
        assert handler.cancelled.is_set()
    assert not await anyio.Path(tmp_path / wire.SOCKET_NAME).exists()


async def test_who_says_nothing_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "REQUEST_DEADLINE_S", 3600.0)
    stopping = anyio.Event()
    with anyio.fail_after(240):
        async with anyio.create_task_group() as tasks:
            await tasks.start(partial(serve, str(tmp_path), Handler(), stopping=stopping))
            async with (
                await anyio.connect_unix(tmp_path / wire.SOCKET_NAME) as silent,
                await anyio.connect_unix(tmp_path / wire.SOCKET_NAME) as begun,
            ):
                await begun.send(b'{"version": 1, ')
                await ask(tmp_path, "echo")  # both are read by now
                stopping.set()
                answer = b"".join([piece async for piece in silent])
                assert json.loads(answer)["error"]["reason"] == "Stopping"
                await begun.send(b'"verb": "echo"}\n')
                answer = b"".join([piece async for piece in begun])
                assert b"result" in answer.splitlines()[-1]


@pytest.mark.parametrize(
    "sent, why",
    [
        (b"not json\n", "not one JSON line"),
        (b"[1]\n", "JSON object"),
        (b"\xff\xfe\n", "not one JSON line"),
        (b"[" * 100_000 + b"\n", "not one JSON line"),
        (b'{"version": 1, "verb": "echo", "extra": 1}\n', "extra"),
        (b'{"version": "1", "verb": "echo"}\n', "version"),
        (b'{"version": 2, "verb": "echo"}\n', "speaks version 2"),
        (b'{"version": 1, "verb": "ec', "ends in the middle"),
        (b"x" * (wire.REQUEST_BYTES_MAX + 1), "not one JSON line"),
    ],
)
async def test_a_malformed_request_is_refused_with_the_reason(
    tmp_path: Path, sent: bytes, why: str
) -> None:
    async with anyio.create_task_group() as tasks:
        await tasks.start(serve, str(tmp_path), Handler())
        error = (await raw(tmp_path, sent))["error"]
        assert error["code"] == "INVALID_ARGUMENT"
        assert why in error["why"]
        tasks.cancel_scope.cancel()


async def test_a_state_directory_may_have_a_path_longer_than_a_socket_address(
    tmp_path: Path,
) -> None:
    folder = tmp_path / ("x" * 120)
    await anyio.Path(folder).mkdir()
    async with anyio.create_task_group() as tasks:
        await tasks.start(serve, str(folder), Handler())
        assert (await ask(folder, "echo"))[0]["verb"] == "echo"
        tasks.cancel_scope.cancel()


def test_without_a_listener_there_is_no_connection(tmp_path: Path) -> None:
    assert client.connect(str(tmp_path)) is None
    assert client.connect(str(tmp_path / "none")) is None
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / wire.SOCKET_NAME))
    assert client.connect(str(tmp_path)) is None


def test_a_peer_of_another_user_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert wire.is_trusted(ours)
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        assert wire.is_trusted(ours) == (os.getuid() == 0)


def test_an_answer_that_never_comes_is_an_unknown_outcome() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(UnknownOutcomeError, match="closed"):
            client.request(ours, "evict", {}, lambda _: None)
