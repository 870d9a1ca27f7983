"""The wheel's client, in a worker process.  Layer: a tier; blocking; imports no event loop.

A native client may hang or crash, so it runs where that costs a worker and not the controller; its
calls give back Mooncake's codes as they are, and `codes` reads them.  Never called, by rule: upsert
of any kind, removal by pattern or of everything, an empty segment name, and force.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import mmap
import os
from importlib import metadata
from typing import Any

from weightctl.adapters.mooncake.client.on_disk import OnDisk
from weightctl.controller.errors import TerminalError, TransientError

_DATA_TYPES = {1: "WEIGHT", 2: "METADATA"}
_LOCAL_BUFFER_BYTES = 16 * 1024 * 1024


class Engine:
    """One client without a segment of its own; `buffer` is shared with the loop's process."""

    def __init__(self, buffer: memoryview, *, library: str, setup: dict[str, Any]) -> None:
        self._buffer = buffer
        self._library_name = library
        self._setup = setup
        self._library: Any = None
        self._store: Any = None
        self._pointer = 0
        self._token = ""
        self._held: mmap.mmap | None = None
        self._held_by: dict[str, mmap.mmap] = {}
        self._on_disk: OnDisk | None = None

    def connect(self, token: str, environment: dict[str, str]) -> str:
        """Set the client up, once; the token given then, by which it is known as an owner.

        Only after the Master was seen serving: without one the set-up blocks for 90 s.
        """
        if self._store is not None:
            return self._token
        os.environ.update(environment)  # read by the library when it is loaded
        try:
            self._library = importlib.import_module(self._library_name)
        except ImportError as error:
            raise TerminalError(
                "the Mooncake client cannot be loaded",
                f"MissingLibrary: {error}",
                "pip install 'weightctl[mooncake]', and the Debian packages that its README names",
            ) from error
        store = self._library.MooncakeDistributedStore()
        code = store.setup(**self._setup)
        if code != 0:
            store.close()
            raise TransientError(
                f"the Mooncake client could not be set up at {self._setup['master_server_addr']}",
                f"set-up answered {code}",
                "check the options `master`, `metadata`, `protocol` and `cluster`, and that the"
                " Master's --root_fs_dir, where it has one, is mounted on this host",
            )
        self._pointer = _address(self._buffer)
        store.register_buffer(self._pointer, len(self._buffer))
        self._store, self._token = store, token
        return token

    # --- putting ---

    def begin(
        self, key: str, size_bytes: int, group_id: str, *, data_type: int, segment: str
    ) -> int:
        """Begin to put one object; nobody can read it before `end`."""
        config = self._config(group_id, data_type, segment)
        code: int = self._store.batch_put_session_start([key], [size_bytes], config)[0]
        return code

    def _config(self, group_id: str, data_type: int, segment: str) -> Any:  # noqa: ANN401 - its own
        config = self._library.ReplicateConfig()
        config.replica_num = 1
        config.with_hard_pin = True
        config.group_ids = [group_id]
        config.data_type = getattr(
            self._library.ObjectDataType, _DATA_TYPES.get(data_type, "GENERAL")
        )
        if segment:
            config.preferred_segment = segment
        return config

    def write(self, key: str, offset: int, size_bytes: int) -> int:
        """Write the first bytes of the buffer at an offset; a negative code, or the count."""
        code: int = self._store.batch_put_from_multi_buffer_ranges(
            [key], [[self._pointer]], [[size_bytes]], [[offset]]
        )[0]
        return code

    def end(self, key: str) -> int:
        """Make the object readable."""
        code: int = self._store.batch_put_session_end([key])[0]
        return code

    def revoke(self, key: str) -> int:
        """Take back what was begun."""
        code: int = self._store.batch_put_session_revoke([key])[0]
        return code

    # --- putting at once, which makes a DISK replica, too ---

    def hold(self, key: str, size_bytes: int) -> None:
        """Have room for the bytes of an object that is to be put."""
        self._held_by[key] = mmap.mmap(-1, size_bytes)

    def gather(self, key: str, offset: int, size_bytes: int) -> int:
        """Take the first bytes of the buffer for it; their count."""
        self._holding(key)[offset : offset + size_bytes] = self._buffer[:size_bytes]
        return size_bytes

    def put_held(self, key: str, group_id: str, *, data_type: int, segment: str) -> int:
        """Put it; 0 also when another object is there, and then nothing is written."""
        held = self._holding(key)
        config = self._config(group_id, data_type, segment)
        pointer = _address(memoryview(held))
        self._store.register_buffer(pointer, len(held))
        try:
            code: int = self._store.put_from(key, pointer, len(held), config)
        finally:
            self._store.unregister_buffer(pointer)
        return code

    def let_go_of(self, key: str) -> None:
        """Forget its bytes."""
        self._held_by.pop(key, None)

    def _holding(self, key: str) -> mmap.mmap:
        if key not in self._held_by:
            raise TransientError(f"the bytes of {key}", "their process has ended", "put it again")
        return self._held_by[key]

    # --- reading; each takes Mooncake's lease on the object ---

    def read(self, key: str, offset: int, size_bytes: int) -> int:
        """Read a range of a MEMORY replica into the buffer; a negative code, or the count."""
        answer = self._store.get_into_ranges(
            [self._pointer], [[key]], [[[0]]], [[[offset]]], [[[size_bytes]]]
        )
        code: int = answer[0][0][0]
        return code

    def digest_in_memory(self, key: str, size_bytes: int) -> tuple[int, bytes]:
        """SHA-256 of a MEMORY replica, read range by range; (a negative code or the count, digest).

        Each range takes a lease of its own, so that a lease need not last for the whole object.
        """
        digest = hashlib.sha256()
        for offset in range(0, size_bytes, len(self._buffer)):
            wanted = min(len(self._buffer), size_bytes - offset)
            code = self.read(key, offset, wanted)
            if code != wanted:
                return code, b""
            digest.update(self._buffer[:wanted])
        return size_bytes, digest.digest()

    def fetch(self, key: str, size_bytes: int) -> int:
        """Read a whole object, from any replica, and hold it; a negative code, or the count."""
        self.let_go()
        held = mmap.mmap(-1, max(size_bytes, 1))
        pointer = _address(memoryview(held))
        self._store.register_buffer(pointer, len(held))
        try:
            code: int = self._store.get_into(key, pointer, size_bytes)
        finally:
            self._store.unregister_buffer(pointer)
        if code == size_bytes:
            self._held = held
        return code

    def piece(self, offset: int, size_bytes: int) -> None:
        """Copy a part of the held object into the buffer."""
        if self._held is None:
            raise TransientError("the held object", "it is not there any more", "read it again")
        self._buffer[:size_bytes] = self._held[offset : offset + size_bytes]

    def digest(self) -> bytes:
        """SHA-256 of the held object."""
        if self._held is None:
            raise TransientError("the held object", "it is not there any more", "read it again")
        return hashlib.sha256(self._held).digest()

    def let_go(self) -> None:
        """Forget the held object."""
        self._held = None  # its memory goes with the last view of it

    def digest_on_disk(
        self, endpoint: str, key: str, size_bytes: int, timeout_s: float
    ) -> tuple[bytes, int]:
        """As `OnDisk.digest`; takes no lease.  A library may bring a way of its own."""
        if self._on_disk is None:
            kind = getattr(self._library, "OnDisk", OnDisk)
            self._on_disk = kind(self._setup, self._buffer, self._pointer)
        return self._on_disk.digest(endpoint, key, size_bytes, timeout_s)

    def touch(self, keys: list[str]) -> None:
        """Ask for objects as a reader does, which makes the Master promote them."""
        self._store.batch_get_replica_desc(keys)

    # --- removing ---

    def clear(self, keys: list[str], segment: str) -> list[str]:
        """Drop the MEMORY replicas on one segment; the keys for which that was done.

        Only for objects that this client put; it removes the last replica without a word.
        """
        if not segment:
            raise TerminalError("a clear without a segment", "it would remove whole objects")
        cleared: list[str] = self._store.batch_replica_clear(keys, segment)
        return cleared

    def remove(self, keys: list[str]) -> list[int]:
        """Remove whole objects; a code for each.  Never by force."""
        codes: list[int] = self._store.batch_remove(keys, False)  # noqa: FBT003 - its signature
        return codes

    # --- parking ---

    def mount(self, size_bytes: int) -> list[str]:
        """Mount a passing segment of this client; its ids."""
        answer = self._store.allocate_and_mount_segment(
            size=size_bytes, protocol=self._setup["protocol"]
        )
        if answer.get("ret") != 0:
            raise TransientError("a parking segment", f"mounting answered {answer.get('ret')}")
        ids: list[str] = answer["segment_ids"]
        return ids

    def unmount(self, segment_ids: list[str], grace_s: int) -> int:
        """Unmount it after a grace, in which it takes nothing new and can still be read."""
        code: int = self._store.unmount_and_free_segment(segment_ids, grace_s)
        return code

    def hostname(self) -> str:
        """The segment name of this client."""
        name: str = self._store.get_hostname()
        return name

    def ask_for_nothing(self) -> int:
        """A question that changes nothing and that the Master counts; its code."""
        _, code = self._store.query_task((0, 0))
        return int(code)

    def release(self) -> str:
        """Version of the distribution that the library is of; empty where it names none."""
        package = self._library_name.partition(".")[0]
        names = metadata.packages_distributions().get(package, [])
        return metadata.version(names[0]) if len(set(names)) == 1 else ""

    def move(self, key: str, source: str, target: str) -> tuple[tuple[int, int], int]:
        """Have a MEMORY replica moved by the host that has it; (task, code)."""
        task, code = self._store.create_move_task(key, source, target)
        return (int(task[0]), int(task[1])), int(code)

    def task(self, task: tuple[int, int]) -> tuple[str, str]:
        """(status, message) of a task."""
        answer, code = self._store.query_task(task)
        if answer is None:
            return "UNKNOWN", f"answered {code}"
        return str(answer.status).rpartition(".")[2], str(answer.message)


def _address(view: memoryview) -> int:
    return ctypes.addressof((ctypes.c_char * len(view)).from_buffer(view))
