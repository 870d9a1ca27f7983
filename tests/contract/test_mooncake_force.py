"""Why weightctl never removes by force: what that does to a reader, on a real Mooncake.

A lease promises a reader that what it reads stays. Removal by force gives the memory away at once,
and the reader's call ends in success with the bytes of whatever was put there meanwhile.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.mooncake.lab import MIB, Cluster, cluster, needs_wheel

pytestmark = needs_wheel

LEASE_TTL_MS = 120_000
"""Longer than any round: whoever reads here holds its lease to the end."""
SIZE_BYTES = 40 * MIB
SEGMENT_MIB = 64
"""Room for one object of that size, so that the next one gets the same memory."""
ROUNDS = 20
_OK, _HAS_LEASE = 0, -706

_READER = """
import ctypes, json, mmap, os, sys
from mooncake import store as library
store = library.MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 32 << 20, "tcp", "", sys.argv[1]) == 0
size = int(sys.argv[2])
memory = mmap.mmap(-1, size)
pointer = ctypes.addressof(ctypes.c_char.from_buffer(memory))
store.register_buffer(pointer, size)
print("ready", flush=True)
sys.stdin.readline()
while True:
    code = store.get_into("old", pointer, size)
    seen = bytes(sorted(set(memory[::4096]))).decode()
    print(json.dumps([code, seen]), flush=True)
    if code != size or seen != "A":
        break
"""
_WRITER = """
import json, sys
from mooncake import store as library
store = library.MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 128 << 20, "tcp", "", sys.argv[1]) == 0
print(json.dumps(0), flush=True)
for line in sys.stdin:
    verb, *words = json.loads(line)
    if verb == "put":
        config = library.ReplicateConfig()
        config.with_hard_pin, config.group_ids = True, ["group"]
        answer = store.put(words[0], words[1].encode() * words[2], config)
    else:
        answer = store.remove(*words)
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("force")
    flags = (f"--default_kv_lease_ttl={LEASE_TTL_MS}", "--client_ttl=300")
    with cluster(folder, *flags, hosts=1, segment_mib=SEGMENT_MIB, offload=False) as made:
        yield made


@contextmanager
def child(real: Cluster, code: str, *words: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, real.master, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "MC_RPC_TIMEOUT_MS": "60000"},
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    answer = process.stdout.readline()
    assert answer, "it has ended"
    return answer


def ask(process: subprocess.Popen[str], *words: object) -> object:
    assert process.stdin is not None
    process.stdin.write(json.dumps(words) + "\n")
    process.stdin.flush()
    return json.loads(line(process))


def one_read_is_cut(real: Cluster, writer: subprocess.Popen[str], pause_s: float) -> object:
    """(code, which bytes) of the last read of a reader that is held up while force is used."""
    assert ask(writer, "put", "old", "A", SIZE_BYTES) == _OK
    with child(real, _READER, SIZE_BYTES) as reader:
        line(reader)
        assert reader.stdin is not None
        reader.stdin.write("go\n")
        reader.stdin.flush()
        assert json.loads(line(reader)) == [SIZE_BYTES, "A"]
        time.sleep(pause_s)
        reader.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, reader.pid, os.WSTOPPED)
        assert ask(writer, "remove", "old") == _HAS_LEASE
        assert ask(writer, "remove", "old", True) == _OK
        assert ask(writer, "put", "new", "B", SIZE_BYTES) == _OK
        reader.send_signal(signal.SIGCONT)
        last: object = [SIZE_BYTES, "A"]
        while last == [SIZE_BYTES, "A"]:
            last = json.loads(line(reader))
    assert ask(writer, "remove", "new", True) == _OK
    return last


def test_force_gives_a_reader_with_a_lease_the_bytes_of_another_object_as_success(
    real: Cluster,
) -> None:
    """When this fails, force may have become safe: see `force_leased` in options.py."""
    seen = []
    with child(real, _WRITER) as writer:
        assert json.loads(line(writer)) == 0
        for number in range(ROUNDS):
            seen.append(one_read_is_cut(real, writer, 0.003 * number))
            if seen[-1] in ([SIZE_BYTES, "AB"], [SIZE_BYTES, "B"]):
                return
    pytest.fail(f"in {ROUNDS} rounds no reader was given wrong bytes: {seen}")


def test_a_lease_on_one_object_is_one_on_every_object_of_its_group(real: Cluster) -> None:
    with child(real, _WRITER) as writer, child(real, _READER, 1) as reader:
        assert json.loads(line(writer)) == 0
        assert ask(writer, "put", "old", "x", 1) == _OK
        assert ask(writer, "put", "beside", "y", 1) == _OK
        line(reader)
        assert reader.stdin is not None
        reader.stdin.write("go\n")
        reader.stdin.flush()
        assert json.loads(line(reader)) == [1, "x"]
        assert ask(writer, "remove", "beside") == _HAS_LEASE
        assert ask(writer, "remove", "beside", True) == _OK
        assert ask(writer, "remove", "old", True) == _OK
