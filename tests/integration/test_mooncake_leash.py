"""What the lab starts ends with who has started it, whatever ends that."""

import os
import select
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from tests.support.mooncake.lab import needs_wheel, require_etcd
from weightctl.adapters.mooncake.lab.leash import Leash

WAIT_MS = 120_000
SLEEPERS = """
    import os, signal, subprocess, sys, threading
    from weightctl.adapters.mooncake.lab.leash import Leash

    leash, made = Leash(), []

    def start():
        sleep = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(9999)"]
        made.append(subprocess.Popen(sleep, process_group=leash.group, stdout=subprocess.PIPE))
        made[-1].stdout.readline()

    start()
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    made[0].send_signal(signal.SIGSTOP)
    print(leash.group, *(one.pid for one in made), flush=True)
    sys.stdin.read()
"""
LAB = """
    import sys
    from pathlib import Path
    from weightctl.adapters.mooncake.lab.pair import pair

    with pair(Path(sys.argv[1]), hosts=1) as made:
        made.hosts[0].prepare()
        started = [made._etcd, *made._masters.values()]
        started += [made.hosts[0].process, made.hosts[0]._spare]
        print(made.leash.group, *(one.pid for one in started), flush=True)
        sys.stdin.read()
"""


@pytest.mark.parametrize(
    "code, count",
    [
        pytest.param(SLEEPERS, 3, id="also-a-stopped-one-and-one-of-a-thread-that-has-ended"),
        pytest.param(LAB, 6, id="etcd-masters-and-hosts", marks=needs_wheel),
    ],
)
def test_a_killed_starter_leaves_no_process(code: str, count: int, tmp_path: Path) -> None:
    if code is LAB:
        require_etcd()
    starter = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with starter, watched(starter) as ends:
        assert len(ends) == count
        assert not ends_of(ends, 0), "none has ended with the thread that has started it"
        starter.kill()
        left = ends
        while left:
            ended = ends_of(left, WAIT_MS)
            assert ended, f"{len(left)} processes are left"
            left = left - ended


def test_what_is_left_when_a_leash_is_closed_ends() -> None:
    with closing(Leash()) as leash:
        sleeper = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(9999)"], process_group=leash.group
        )
    assert sleeper.wait(WAIT_MS / 1000) < 0


@contextmanager
def watched(starter: "subprocess.Popen[str]") -> Iterator[set[int]]:
    """Descriptors of the processes that the starter names, each readable once that has ended."""
    assert starter.stdout is not None
    with ExitStack() as stack:
        found = {os.pidfd_open(int(pid)) for pid in starter.stdout.readline().split()}
        for fd in found:
            stack.callback(os.close, fd)
        yield set(found)


def ends_of(ends: set[int], wait_ms: int) -> set[int]:
    waiting = select.poll()
    for fd in ends:
        waiting.register(fd, select.POLLIN)
    return {fd for fd, _ in waiting.poll(wait_ms)}
