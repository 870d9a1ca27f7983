"""The client library's face over the imitated Master: what the adapter's engine calls, no more.

Stands in for `mooncake.store` in the worker processes.
"""

import ctypes
import hashlib
import itertools
import os
import pickle
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from types import SimpleNamespace
from typing import Any

from weightctl.controller.errors import TerminalError, TransientError

ObjectDataType = SimpleNamespace(WEIGHT=1, METADATA=2, GENERAL=0)
NO_ANSWER = -901
NOT_SERVED = -1012
_numbers = itertools.count()


class ReplicateConfig:
    """Anything may be set on it."""

    preferred_segment = ""
    with_hard_pin = False
    group_ids: Sequence[str] = ("",)


class MooncakeDistributedStore:
    """One client."""

    def setup(self, **options: Any) -> int:
        assert options["global_segment_size"] == 0
        self._master = options["master_server_addr"]
        self._timeout_s = int(os.environ["MC_RPC_TIMEOUT_MS"]) / 1000
        self._id = f"client-{os.getpid()}-{next(_numbers)}"
        return 0

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        host, port = self._master.split(":")
        connection = HTTPConnection(host, int(port), timeout=self._timeout_s)
        try:
            connection.request("POST", "/call", pickle.dumps((name, args, kwargs)))
            return pickle.loads(connection.getresponse().read())
        finally:
            connection.close()

    def _code(self, name: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._call(name, *args, **kwargs)
        except (OSError, HTTPException):
            return NO_ANSWER

    def close(self) -> int:
        return 0

    def register_buffer(self, pointer: int, size: int) -> int:
        return 0

    def unregister_buffer(self, pointer: int) -> int:
        return 0

    def get_hostname(self) -> str:
        return self._id

    def batch_put_session_start(
        self, keys: list[str], sizes: list[int], config: ReplicateConfig
    ) -> list[int]:
        where, pinned = config.preferred_segment, config.with_hard_pin
        group = config.group_ids[0]
        code = self._code("start", self._id, keys[0], sizes[0], where, pinned=pinned, group=group)
        return [code]

    def put_from(self, key: str, pointer: int, size: int, config: ReplicateConfig) -> int:
        content, where = ctypes.string_at(pointer, size), config.preferred_segment
        more = {"pinned": config.with_hard_pin, "group": config.group_ids[0]}
        code: int = self._code("put", self._id, key, content, where, **more)
        return code

    def batch_put_from_multi_buffer_ranges(
        self, keys: list[str], pointers: Any, sizes: Any, offsets: Any
    ) -> list[int]:
        content = ctypes.string_at(pointers[0][0], sizes[0][0])
        return [self._code("write", self._id, keys[0], offsets[0][0], content)]

    def batch_put_session_end(self, keys: list[str]) -> list[int]:
        return [self._code("end", self._id, keys[0])]

    def batch_put_session_revoke(self, keys: list[str]) -> list[int]:
        return [self._code("revoke", self._id, keys[0])]

    def get_into_ranges(
        self, pointers: list[int], keys: Any, targets: Any, sources: Any, sizes: Any
    ) -> list[list[list[int]]]:
        got = self._code("read", keys[0][0], sources[0][0][0], sizes[0][0][0])
        return [[[self._copied(pointers[0], got)]]]

    def get_into(self, key: str, pointer: int, size: int) -> int:
        return self._copied(pointer, self._code("get", key))

    def _copied(self, pointer: int, got: Any) -> int:
        if isinstance(got, int):
            return got
        ctypes.memmove(pointer, got, len(got))
        return len(got)

    def digest_on_disk(self, endpoint: str, key: str) -> Any:
        return self._code("on_disk", endpoint, key)

    def batch_get_replica_desc(self, keys: list[str]) -> None:
        self._code("touch", keys)

    def batch_replica_clear(self, keys: list[str], segment: str) -> list[str]:
        cleared = self._code("clear", self._id, keys, segment)
        return cleared if isinstance(cleared, list) else []

    def batch_remove(self, keys: list[str], force: bool) -> list[int]:
        assert not force
        codes = self._code("remove", keys)
        return codes if isinstance(codes, list) else [codes] * len(keys)

    def allocate_and_mount_segment(self, *, size: int, protocol: str) -> dict[str, Any]:
        ids = self._code("mount", self._id, size)
        return {"ret": ids} if isinstance(ids, int) else {"ret": 0, "segment_ids": ids}

    def unmount_and_free_segment(self, ids: list[str], grace_s: int) -> int:
        code: int = self._code("unmount", ids, grace_s)
        return code

    def create_move_task(self, key: str, source: str, target: str) -> Any:
        answer = self._code("move", key, source, target)
        return ((0, 0), answer) if isinstance(answer, int) else answer

    def query_task(self, task: tuple[int, int]) -> Any:
        answer = self._code("task", task[0])
        if isinstance(answer, int):
            return None, answer
        status, message = answer
        return SimpleNamespace(status=f"TaskStatus.{status}", message=message), 0


class OnDisk:
    """How hosts' files are read beside memory, instead of `mooncake.client.on_disk`."""

    LENT_MS = 5_000_000

    def __init__(self, setup: dict[str, Any], buffer: memoryview, pointer: int) -> None:
        self._store = MooncakeDistributedStore()
        self._store.setup(**setup)

    def digest(
        self, endpoint: str, key: str, size_bytes: int, timeout_s: float
    ) -> tuple[bytes, int]:
        got = self._store.digest_on_disk(endpoint, key)
        if got == NOT_SERVED:
            raise TerminalError(f"the host at {endpoint}", "it serves no files beside memory")
        if isinstance(got, int) or len(got) != size_bytes:
            raise TransientError(f"the file of {key}", f"answered {got!r:.20}")
        return hashlib.sha256(got).digest(), self.LENT_MS
