"""What a model's tensors are, by readers that share no code with weightctl.  Layer: a tier; lab.

One reads a safetensors file, the other is a process that has Mooncake's client alone: it gets the
manifest, and by it one payload object.  Invariant: neither imports anything of the controller.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

Tensor = tuple[str, tuple[int, ...], str]
"""Type, shape, and SHA-256 of the bytes."""
Tensors = dict[str, Tensor]
_LENGTH_BYTES = 8

_READER = """
import collections, ctypes, hashlib, json, mmap, sys, time
from mooncake.store import MooncakeDistributedStore
master, key = sys.argv[1:]
store = MooncakeDistributedStore()
code = store.setup(local_hostname="127.0.0.1", metadata_server="P2PHANDSHAKE",
                   global_segment_size=0, local_buffer_size=32 << 20, protocol="tcp",
                   rdma_devices="", master_server_addr=master)
if code:
    sys.exit(f"set-up answered {code}")
PIECE = 4 << 20
buffer = mmap.mmap(-1, PIECE)
pointer = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
store.register_buffer(pointer, PIECE)

def patiently(read):
    # A read that outlasts Mooncake's lease is refused; the next one may be faster.
    for _ in range(300):
        if got := read():
            return got
        time.sleep(0.1)
    sys.exit("it could not be read")

def piece(name, offset, size):
    code = store.get_into_ranges([pointer], [[name]], [[[0]]], [[[offset]]], [[[size]]])[0][0][0]
    return buffer[:size] if code == size else b""

manifest = json.loads(patiently(lambda: store.get(key)))
parts = collections.Counter(one["tensor_id"] for one in manifest["fragments"])
whole = [one for one in manifest["fragments"] if parts[one["tensor_id"]] == 1]
fragment = max(whole, key=lambda one: one["nbytes"])
name = fragment["object_key"]
size = max(one["object_offset"] + one["nbytes"]
           for one in manifest["fragments"] if one["object_key"] == name)
payload = b"".join(patiently(lambda: piece(name, at, min(PIECE, size - at)))
                   for at in range(0, size, PIECE))
start = fragment["object_offset"]
part = payload[start : start + fragment["nbytes"]]
(tensor,) = [one for one in manifest["tensors"] if one["tensor_id"] == fragment["tensor_id"]]
print(json.dumps([name, len(payload), tensor["tensor_id"], tensor["dtype"],
                  tensor["global_shape"], hashlib.sha256(part).hexdigest()]))
sys.stdout.flush()
store.close()
"""


@dataclass(frozen=True, slots=True)
class Found:
    """One payload object that was read, and a tensor that lies in it whole."""

    key: str
    size_bytes: int
    tensor: tuple[str, Tensor]


def tensors_of(path: Path) -> Tensors:
    """The tensors of a safetensors file."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        header = json.loads(file.read(size))
        found: Tensors = {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            start, stop = entry["data_offsets"]
            file.seek(_LENGTH_BYTES + size + start)
            digest = hashlib.sha256(file.read(stop - start)).hexdigest()
            found[name] = entry["dtype"], tuple(entry["shape"]), digest
    return found


def other_process(master: str, manifest_key: str) -> Found:
    """Read in a process of its own.  Raises RuntimeError with what it said."""
    done = subprocess.run(  # noqa: S603 - our own interpreter and text
        [sys.executable, "-c", _READER, master, manifest_key],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the other reader ended with {done.returncode}: {done.stderr}")
    key, size_bytes, name, dtype, shape, digest = json.loads(done.stdout.splitlines()[-1])
    return Found(key, size_bytes, (name, (dtype, tuple(shape), digest)))
