"""A way to a real Master's HTTP interface that can be shut: then it refuses everybody at once.

A Master that is frozen instead keeps each caller waiting for a deadline, and one that is killed
forgets.  The gate is a process of its own, so that what it holds is not counted as a tier's.
"""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from weightctl.adapters.mooncake.lab.cluster import Cluster, until

_CHUNK_BYTES = 1 << 18


class Gated:
    """A cluster (`mooncake_harness.Medium`) that is looked at through a gate."""

    def __init__(self, real: Cluster) -> None:
        self.real = real
        self.master = real.master
        self._gate = subprocess.Popen(
            [sys.executable, __file__, *real.admin.split(":")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.admin = f"127.0.0.1:{self._answer()}"

    def _answer(self) -> str:
        assert self._gate.stdout is not None
        answer = self._gate.stdout.readline().strip()
        assert answer, "the gate has ended"
        return answer

    def _tell(self, word: str) -> None:
        assert self._gate.stdin is not None
        self._gate.stdin.write(f"{word}\n")
        self._gate.stdin.flush()
        assert self._answer() == word

    def take_away(self) -> None:
        """Nobody reaches the Master any more: every connection ends without an answer."""
        self._tell("shut")

    def bring_back(self) -> None:
        """Undo `take_away`."""
        self._tell("open")

    def get(self, path: str) -> str:
        return self.real.get(path)

    def empty(self) -> None:
        self.real.empty()
        until("the memory of all is free", lambda: not self.real.used_bytes())

    def settle(self) -> None:
        self.real.settle()

    def freeze(self) -> None:
        self.real.freeze()

    def thaw(self) -> None:
        self.real.thaw()

    def close(self) -> None:
        self._gate.kill()
        self._gate.wait()
        for pipe in (self._gate.stdin, self._gate.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def gated(real: Cluster) -> Iterator[Gated]:
    """The cluster behind a gate that ends with the block."""
    made = Gated(real)
    try:
        yield made
    finally:
        made.close()


class _Gate:
    """The process's side."""

    def __init__(self, host: str, port: str) -> None:
        self._to = host, int(port)
        self._shut = False
        self._held: set[asyncio.StreamWriter] = set()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._shut:
            writer.transport.abort()
            return
        with suppress(OSError):
            back, on = await asyncio.open_connection(*self._to)
            self._held |= {writer, on}
            await asyncio.gather(_pass(reader, on), _pass(back, writer))
            self._held -= {writer, on}

    def turn(self, word: str) -> None:
        self._shut = word == "shut"
        if self._shut:
            for writer in self._held:
                writer.transport.abort()
        print(word, flush=True)  # noqa: T201 - the answer


async def _pass(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(_CHUNK_BYTES):
            target.write(data)
            await target.drain()
    target.close()


async def _run() -> None:
    gate = _Gate(*sys.argv[1:])
    server = await asyncio.start_server(gate.take, "127.0.0.1", 0)
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def listen() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(gate.turn, line.strip())
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=listen, daemon=True).start()
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - the answer
    await ended.wait()


if __name__ == "__main__":
    asyncio.run(_run())
