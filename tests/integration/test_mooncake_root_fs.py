"""Copies below a Master's `root_fs_dir`: Mooncake's plain put makes them, a session makes none.

weightctl puts in sessions, so it only shows such copies, and says so before an import begins.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import IDENTITY, Cli
from tests.support.mooncake.lab import LEASE_TTL_S, Cluster, cluster, needs_wheel, until

pytestmark = needs_wheel

SECTION = """
[mooncake]
admin = "{admin}"
master = "{master}"
lease_ttl_s = {lease_ttl_s}
deadline_s = 60

[[tier]]
name = "memory"
kind = "mooncake-memory"

[[tier]]
name = "fs"
kind = "mooncake-disk"
capacity_bytes = "1GiB"
"""
_PUTS = """
import ctypes, mmap, sys
from mooncake import store as library
store = library.MooncakeDistributedStore()
assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, 32 << 20, "tcp", "", sys.argv[1]) == 0
memory = mmap.mmap(-1, 4096)
pointer = ctypes.addressof(ctypes.c_char.from_buffer(memory))
store.register_buffer(pointer, 4096)
config = library.ReplicateConfig()
config.with_hard_pin = True
assert store.batch_put_session_start(["session"], [4096], config) == [0]
assert store.batch_put_from_multi_buffer_ranges(["session"], [[pointer]], [[4096]], [[0]]) == [4096]
assert store.batch_put_session_end(["session"]) == [0]
assert store.put("plain", b"plain", config) == 0
print("put", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "fs").mkdir()
    folder = tmp_path / "cluster"
    folder.mkdir()
    flags = ("--client_ttl=120", f"--root_fs_dir={tmp_path / 'fs'}")
    with cluster(folder, *flags, hosts=1, segment_mib=64, offload=False) as made:
        yield made


def test_only_a_plain_put_makes_a_copy_and_an_import_is_refused_before_it_begins(
    real: Cluster, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", _PUTS, real.master]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"put\n"
            until("its copy is there", lambda: bool(real.entry("plain")["disk_values"]))
            assert real.entry("session")["values"]
            assert not real.entry("session")["disk_values"]
        finally:
            child.kill()
    section = SECTION.format(admin=real.admin, master=real.master, lease_ttl_s=LEASE_TTL_S)
    cli = Cli(tmp_path, (), extra=section)
    refused = cli.run("import", IDENTITY, str(cli.model), code=2).err
    assert "fs (mooncake-disk) shows replicas that others make, and can make none" in refused
    cli.run("get", IDENTITY, code=3)
    checks = {check["name"]: check for check in cli.json("doctor", code=1)["checks"]}
    assert "a persistent cold tier; fs only shows" in checks["kinds of tiers"]["detail"]
