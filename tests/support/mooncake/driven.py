"""A real Mooncake client in a process of its own, driven by expressions, without the adapter."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from weightctl.adapters.mooncake.lab.cluster import STARTS, Cluster

_CLIENT = """
import ctypes, json, sys
from mooncake import store as library
store = library.MooncakeDistributedStore()
code = store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 32 << 20, "tcp", "", sys.argv[1])
memory = bytearray(4 << 20)
pointer = ctypes.addressof((ctypes.c_char * len(memory)).from_buffer(memory))
store.register_buffer(pointer, len(memory))
def config(**fields):
    made = library.ReplicateConfig()
    for name, value in fields.items():
        setattr(made, name, value)
    return made
print(json.dumps(code), flush=True)
def answer(expression):
    try:
        return json.dumps(eval(expression))
    except Exception as error:  # told, so that who asks can ask again
        return json.dumps(f"{type(error).__name__}: {error}")
for line in sys.stdin:
    print(answer(json.loads(line)), flush=True)
"""


class Client:
    """A client without a segment in a process of its own, driven by expressions."""

    def __init__(self, real: Cluster, answer_s: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _CLIENT, real.master],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "MC_RPC_TIMEOUT_MS": str(answer_s * 1000)},
            text=True,
        )
        self.ready = self._answer() == 0

    def _answer(self) -> object:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def __call__(self, expression: str) -> object:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(expression) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def client(real: Cluster, answer_s: int = 60) -> Iterator[Client]:
    """It waits for one answer of the Master that long."""
    made = Client(real, answer_s)
    for _ in range(STARTS):  # its set-up asks the Master, too
        if made.ready:
            break
        made.close()
        made = Client(real, answer_s)
    try:
        assert made.ready
        yield made
    finally:
        made.close()
