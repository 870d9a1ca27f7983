"""What a Mooncake Master and its hosts hold and answer, as far as the adapter relies on it.

Pure state under one lock, in the time of whoever runs it: `fake` serves it over HTTP, and the
simulation under virtual time. Offload and promotion happen a little after what causes them.
Where this and a real Master differ, this is wrong: the same suite runs on both.
"""

import json
import re
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

LEASE_TTL_S = 0.15
SEGMENT_BYTES = 256 * 1024 * 1024
DISK_BYTES = 2 * 1024**4
"""What a host that was not told otherwise says of its disk."""

_NOBODY = 1
"""A port on which nobody listens."""
OK, NO_ROOM, INVALID, NOT_READY, NOT_FOUND, EXISTS, LEASED = 0, -200, -600, -703, -704, -705, -706
NOT_NOW, NO_TASK = -1010, -1400


@dataclass(frozen=True, slots=True, kw_only=True)
class Paces:
    """How long things take, in seconds."""

    lease_ttl_s: float = LEASE_TTL_S
    offload_s: float = 0.02
    promote_s: float = 0.02
    count_s: float = 0.02
    """Between two counts of a drain job."""


@dataclass(slots=True)
class Segment:
    """A memory segment of one client."""

    name: str
    client: str
    size_bytes: int
    endpoint: str
    gone_at: float | None = None
    """When a graceful unmount takes effect."""
    drain: str = ""
    """DRAINING or DRAINED; takes nothing new."""

    @property
    def status(self) -> str:
        if self.gone_at is not None and self.drain != "DRAINED":
            return "GRACEFULLY_UNMOUNTING"
        return self.drain or "OK"


@dataclass(slots=True)
class Object:
    """One object: its bytes, who put it, and where it lies."""

    owner: str
    content: bytearray
    complete: bool = False
    pinned: bool = False
    memory: dict[str, int] = field(default_factory=dict)
    """Endpoint to address."""
    disk: str = ""
    """Client id of the host that has offloaded it."""
    old: bytes = b""
    """What is in that host's file when it is another content; a reader gets it without memory."""
    file: str = ""
    """Path of its file below `root_fs`, once the Master lists it."""
    unwritten: bool = False
    """A file of it was to be written and never will be, as of what is put in a session."""
    group: str = ""
    lease_until: float = 0.0
    offload_at: float | None = None
    promote_at: float | None = None


@dataclass(slots=True)
class Job:
    """A drain job and its last count."""

    segment: str
    status: str = "CREATED"
    blocked: int = 0
    counted_at: float = 0.0


class Imitation:
    """A Master with two hosts that offload."""

    def __init__(self, now: Callable[[], float] = time.monotonic, paces: Paces = Paces()) -> None:
        self._lock = threading.RLock()
        self._now = now
        self._paces = paces
        self.objects: dict[str, Object] = {}
        self.segments: dict[str, Segment] = {}
        self.tasks: dict[int, tuple[str, str]] = {}
        self.jobs: dict[str, Job] = {}
        self.dead: set[str] = set()
        """Client ids of hosts that accept no connection, which the Master does not know yet."""
        self._made = 0
        self.calls: list[str] = []
        self.master = "127.0.0.1:1"
        """Where it is reached."""
        self.root_fs = ""
        """The Master's `--root_fs_dir`; its hosts offload nothing then."""
        self.has_disks = True
        """Whether the Master and its hosts were started with offload."""
        self.serves_files = True
        """Whether its hosts are of a release whose files can be read beside memory."""
        self._mount_hosts()

    def _mount_hosts(self) -> None:
        for number in range(2):
            self._mount(f"host{number}", SEGMENT_BYTES)

    # --- what a test does to it ---

    def brings_back(self, key: str, content: bytes, host: str = "host9") -> None:
        """A host comes with an older file of a key's name and size: it is taken for a copy."""
        with self._lock:
            one = self.objects[key]
            assert len(content) == len(one.content)
            one.disk, one.old, one.offload_at = host, content, None

    def put_anew(self, key: str, content: bytes) -> None:
        """Another client removes an object and puts one of that size, which gets its very place."""
        with self._lock:
            one = self.objects[key]
            assert len(content) == len(one.content)
            one.owner, one.content[:] = "another", content

    def empty(self) -> None:
        with self._lock:
            self.objects = {key: one for key, one in self.objects.items() if not one.complete}

    def restart(self) -> None:
        """A Master that was restarted: memory and leases are forgotten, disks reported again."""
        with self._lock:
            self._tick()
            kept = {key: one for key, one in self.objects.items() if one.disk}
            for one in kept.values():
                one.memory.clear()
                one.owner, one.lease_until = "the host", 0.0
            self.objects = kept

    def get(self, path: str) -> str:
        with self._lock:
            return self._answer(path)[1].decode()

    # --- time ---

    def _tick(self) -> None:
        now = self._now()
        for name, segment in list(self.segments.items()):
            if segment.gone_at is not None and now >= segment.gone_at:
                del self.segments[name]
                self._forget_endpoint(segment.endpoint)
        for key, one in list(self.objects.items()):
            if one.offload_at is not None and now >= one.offload_at and one.memory:
                self._offload(key, one, now)
            if one.promote_at is not None and now >= one.promote_at:
                one.promote_at = None
                if one.disk and not one.memory:
                    self._promote(key, one)
        for job in self.jobs.values():
            if job.status in {"CREATED", "RUNNING"} and now >= job.counted_at + self._paces.count_s:
                self._count(job, now)

    def _offload(self, key: str, one: Object, now: float) -> None:
        """The host has read it, which took a lease, and written it to its disk."""
        one.disk, one.offload_at = self._host_of(next(iter(one.memory))), None
        one.lease_until = max(one.lease_until, now + self._paces.lease_ttl_s / 2)

    def _promote(self, key: str, one: Object) -> None:
        one.content[:] = one.old or one.content
        self._place(one, "")

    def _count(self, job: Job, now: float) -> None:
        """Move away what may be moved, and count the rest; the segment is drained without any."""
        segment = self.segments.get(job.segment)
        endpoint = segment.endpoint if segment is not None else ""
        there = [one for one in self.objects.values() if endpoint in one.memory]
        job.counted_at, job.blocked, job.status = now, 0, "RUNNING"
        for one in there:
            held = one.pinned or not one.complete or now < one.lease_until
            if held or not self._place(one, ""):
                job.blocked += 1
            else:
                del one.memory[endpoint]
        if not there:
            job.status = "SUCCEEDED"
            if segment is not None:
                segment.drain = "DRAINED"

    def _drain(self, path: str, raw: bytes) -> tuple[int, bytes]:
        with self._lock:
            self._tick()
            name, _, query = path.removeprefix("/api/v1/drain_jobs").partition("?job_id=")
            if not name:
                segment = self.segments.get(json.loads(raw)["segments"][0])
                if segment is None or segment.status != "OK":
                    return 409, b'{"error_code":-1010}'
                segment.drain = "DRAINING"
                self._made += 1
                self.jobs[f"{self._made}-0"] = Job(segment.name)
                return 200, json.dumps({"job_id": f"{self._made}-0"}).encode()
            job = self.jobs.get(query)
            if job is None:
                return 404, b'{"error_code":-1402}'
            if name == "/cancel":
                job.status = "CANCELED"
                self.segments[job.segment].drain = ""
            counts = {"failed_units": 0, "blocked_units": job.blocked, "active_units": 0}
            at_ms = int(job.counted_at * 1000)
            told = {"status_name": job.status, "last_updated_at_ms_epoch": at_ms, **counts}
            return 200, json.dumps(told).encode()

    def _forget_endpoint(self, endpoint: str) -> None:
        for key, one in list(self.objects.items()):
            one.memory.pop(endpoint, None)
            if one.complete and not (one.memory or one.disk or one.file):
                del self.objects[key]

    # --- RPC ---

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """One call of the client library, by the name of its `rpc_` method here."""
        with self._lock:
            self._tick()
            self.calls.append(name)
            return getattr(self, f"rpc_{name}")(*args, **kwargs)

    # --- HTTP ---

    def http(self, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Status and body of the answer; a request with a body is a POST."""
        return self._drain(path, body) if body else self._answer(path)

    def _answer(self, path: str) -> tuple[int, bytes]:
        with self._lock:
            self._tick()
            if path == "/health":
                health = {"role": "leader", "service_ready": True, "view_version": None}
                return 200, json.dumps(health).encode()
            if path == "/get_all_keys":
                return 200, "\n".join(k for k, one in self.objects.items() if one.complete).encode()
            if path == "/get_segments_detail":
                return 200, json.dumps(
                    {"segments": [*map(self._row, self.segments.values())]}
                ).encode()
            if path == "/metrics":
                return 200, self._numbers().encode()
            if path.startswith("/api/v1/drain_jobs"):
                return self._drain(path, b"")
            name, _, query = path.partition("?keys=")
            if name == "/batch_query_keys" and query:
                keys = unquote_to_bytes(query).decode().split(",")
                data = {key: self._entry(key) for key in keys}
                return 200, json.dumps({"success": True, "data": data}).encode()
            return 404, b"{}"

    def _numbers(self) -> str:
        hosts = sum(segment.client.startswith("host") for segment in self.segments.values())
        disks = 0 if self.root_fs or not self.has_disks else hosts * DISK_BYTES
        return (
            f"# HELP of no use\nmaster_total_file_capacity_bytes {disks}\n"
            'segment_total_capacity_bytes{segment="host0"} 1\n'
            f"master_query_task_requests_total {self.calls.count('task')}\n"
        )

    def _row(self, segment: Segment) -> dict[str, object]:
        return {
            "segment_name": segment.name,
            "segment_id": f"id-{segment.name}",
            "client_id": segment.client,
            "te_endpoint": segment.endpoint,
            "status": segment.status,
            "allocator_used_bytes": self._used(segment) if segment.status == "OK" else 0,
            "allocator_capacity_bytes": segment.size_bytes,
        }

    def _used(self, segment: Segment) -> int:
        return sum(
            len(one.content) for one in self.objects.values() if segment.endpoint in one.memory
        )

    def _entry(self, key: str) -> dict[str, object]:
        one = self.objects.get(key)
        empty = {"values": None, "disk_values": None, "local_disk_values": None, "nof_values": None}
        if one is None or not one.complete:
            error = "OBJECT_NOT_FOUND" if one is None else "REPLICA_IS_NOT_READY"
            return {"ok": False, "error": error, **empty}
        values = [
            {"size_": len(one.content), "buffer_address_": at, "transport_endpoint_": endpoint}
            for endpoint, at in one.memory.items()
        ]
        disks = [self._on_disk(one)] if one.disk else None
        found = {"values": values, "local_disk_values": disks}
        if one.file:
            found["disk_values"] = [{"file_path": one.file, "object_size": len(one.content)}]
        elif one.unwritten and not one.memory:
            return {**empty, "ok": False, "error": "REPLICA_IS_NOT_READY"}
        return {**empty, "ok": True, "error": None, **found}

    def _on_disk(self, one: Object) -> dict[str, object]:
        endpoint = f"127.0.0.1:{_NOBODY}" if one.disk in self.dead else self.master
        size_bytes = len(one.content)
        return {"client_id": one.disk, "object_size": size_bytes, "transport_endpoint": endpoint}

    # --- RPCs, one for each method of the client library that the adapter calls ---

    def _mount(self, client: str, size_bytes: int) -> Segment:
        self._made += 1
        name = f"10.0.0.{self._made}:1"
        segment = Segment(name, client, size_bytes, f"10.0.0.{self._made}:2")
        self.segments[name] = segment
        return segment

    def _host_of(self, endpoint: str) -> str:
        return next((s.client for s in self.segments.values() if s.endpoint == endpoint), "host0")

    def _place(self, one: Object, preferred: str) -> bool:
        names = [preferred, *self.segments] if preferred in self.segments else list(self.segments)
        for name in names:
            segment = self.segments[name]
            room = segment.size_bytes - self._used(segment)
            if segment.status == "OK" and room >= len(one.content):
                self._made += 1
                one.memory[segment.endpoint] = self._made
                return True
        return False

    def _touched(self, one: Object) -> None:
        now = self._now()
        for other in self.objects.values():
            if other is one or (one.group and other.group == one.group):
                other.lease_until = now + self._paces.lease_ttl_s
        if one.disk and not one.memory and one.promote_at is None:
            one.promote_at = now + self._paces.promote_s

    def rpc_start(
        self,
        client: str,
        key: str,
        size_bytes: int,
        preferred: str,
        *,
        pinned: bool = False,
        group: str = "",
    ) -> int:
        if size_bytes == 0:
            return INVALID
        if key in self.objects:
            return EXISTS
        one = Object(client, bytearray(size_bytes), pinned=pinned, group=group)
        one.unwritten = bool(self.root_fs)
        if not self._place(one, preferred):
            return NO_ROOM
        self.objects[key] = one
        return OK

    def rpc_write(self, client: str, key: str, offset: int, content: bytes) -> int:
        one = self.objects.get(key)
        if one is None or one.complete or one.owner != client:
            return INVALID
        one.content[offset : offset + len(content)] = content
        return len(content)

    def rpc_end(self, client: str, key: str) -> int:
        one = self.objects.get(key)
        if one is None:
            return NOT_FOUND
        if one.complete or one.owner != client:
            return INVALID
        one.complete = True
        one.offload_at = None if self.root_fs else self._now() + self._paces.offload_s
        return OK

    def rpc_put(self, client: str, key: str, content: bytes, preferred: str, **more: Any) -> int:
        """At once; a success without an effect where the key is there."""
        code = self.rpc_start(client, key, len(content), preferred, **more)
        if code != OK:
            return OK if code == EXISTS else code
        self.rpc_write(client, key, 0, content)
        self.rpc_end(client, key)
        if self.root_fs:
            self._write(key, self.objects[key])
        return OK

    def _write(self, key: str, one: Object) -> None:
        """Into the place of whatever is there."""
        low = zlib.crc32(key.encode())
        folder = Path(self.root_fs, "cluster", chr(97 + low % 16), chr(97 + low // 16 % 16))
        path = folder / re.sub(r'[/\\:*?"<>|]', "_", key)
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(one.content)
            one.file, one.unwritten = str(path), False

    def _from_file(self, one: Object) -> bytes | int:
        with suppress(OSError):
            content = Path(one.file).read_bytes()
            if len(content) >= len(one.content):
                return content[: len(one.content)]
        return -800

    def rpc_revoke(self, client: str, key: str) -> int:
        one = self.objects.get(key)
        if one is None or one.complete or one.owner != client:
            return INVALID
        del self.objects[key]
        return OK

    def rpc_left(self, client: str) -> None:
        """A client has ended: what it had begun is discarded, its segments are unmounted."""
        for key, one in list(self.objects.items()):
            if one.owner == client and not one.complete:
                del self.objects[key]
        for segment in self.segments.values():
            if segment.client == client:
                segment.gone_at = 0.0

    def rpc_read(self, key: str, offset: int, size_bytes: int) -> int | bytes:
        one = self.objects.get(key)
        if one is None or not one.complete:
            return NOT_FOUND
        self._touched(one)
        if offset + size_bytes > len(one.content):
            return INVALID
        if one.memory:
            return bytes(one.content[offset : offset + size_bytes])
        got = self._from_file(one) if one.file else -900
        return got if isinstance(got, int) else got[offset : offset + size_bytes]

    def rpc_get(self, key: str) -> int | bytes:
        one = self.objects.get(key)
        if one is None or not one.complete:
            return NOT_FOUND
        self._touched(one)
        if one.file and not (one.memory or one.disk):
            return self._from_file(one)
        if one.disk in self.dead and not one.memory:
            return -900
        return bytes(one.content if one.memory else one.old or one.content)

    def rpc_on_disk(self, endpoint: str, key: str) -> int | bytes:
        """The file of a host, whatever memory holds; no lease, no promotion."""
        one = self.objects.get(key)
        if not self.serves_files:
            return -1012
        if one is None or not one.disk or endpoint != self.master or one.disk in self.dead:
            return -1101
        return bytes(one.old or one.content)

    def rpc_touch(self, keys: list[str]) -> None:
        for key in keys:
            if key in self.objects:
                self._touched(self.objects[key])

    def rpc_clear(self, client: str, keys: list[str], segment: str) -> list[str]:
        cleared = []
        endpoint = self.segments[segment].endpoint if segment in self.segments else ""
        for key in keys:
            one = self.objects.get(key)
            if one is None or one.owner != client or self._now() < one.lease_until:
                continue
            if one.memory.pop(endpoint, None) is not None:
                cleared.append(key)
                if not (one.memory or one.disk or one.file or one.unwritten):
                    del self.objects[key]
        return cleared

    def rpc_remove(self, keys: list[str]) -> list[int]:
        return [self._remove(key) for key in keys]

    def _remove(self, key: str) -> int:
        one = self.objects.get(key)
        if one is None:
            return NOT_FOUND
        if not one.complete or one.unwritten:
            return NOT_READY
        if self._now() < one.lease_until:
            return LEASED
        del self.objects[key]
        return OK

    def rpc_mount(self, client: str, size_bytes: int) -> list[str]:
        return [f"id-{self._mount(client, size_bytes).name}"]

    def rpc_unmount(self, ids: list[str], grace_s: int) -> int:
        found = [one for one in self.segments.values() if f"id-{one.name}" in ids]
        if not found or found[0].gone_at is not None:
            return INVALID
        if found[0].drain == "DRAINED" and grace_s:
            return NOT_NOW
        found[0].gone_at = self._now() + grace_s
        return OK

    def rpc_task(self, number: int) -> tuple[str, str] | int:
        return self.tasks.get(number, NO_TASK)

    def rpc_move(self, key: str, source: str, target: str) -> tuple[tuple[int, int], int]:
        one = self.objects.get(key)
        if one is None:
            return (0, 0), NOT_FOUND
        if source not in self.segments or target not in self.segments or source == target:
            return (0, 0), INVALID
        old, new = self.segments[source].endpoint, self.segments[target].endpoint
        if old not in one.memory:
            return (0, 0), INVALID
        there = self.segments[target]
        if there.status != "OK":
            return (0, 0), NOT_NOW
        self._made += 1
        if there.size_bytes - self._used(there) < len(one.content):
            self.tasks[self._made] = ("FAILED", "NO_AVAILABLE_HANDLE")
            return (self._made, 0), OK
        one.memory[new] = self._made
        del one.memory[old]
        self.tasks[self._made] = ("SUCCESS", "")
        return (self._made, 0), OK
