"""Reading what only a disk had: a read that outlasted its lease has brought it into memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from weightctl.adapters.mooncake.client.engine import Engine
from weightctl.adapters.mooncake.client.transfers import Reader, digest_of
from weightctl.adapters.mooncake.connection import Connection
from weightctl.controller.core.observation import Member
from weightctl.controller.errors import TransientError

CONTENT, OUTLASTED, ABSENT = b"twelve bytes", -706, -704


class Worker:
    """A client whose answers to whole reads and to ranges of memory are given."""

    def __init__(self, *, promotes: bool) -> None:
        self.buffer = bytearray(64)
        self.in_memory = False
        self.promotes = promotes
        self.asked: list[str] = []

    def at_end(self, _: object) -> None:
        """Nothing is held."""

    async def call(self, method: Any, key: str, *args: Any) -> Any:
        self.asked.append(method.__name__)
        match method.__name__:
            case "fetch":
                self.in_memory = self.promotes
                return OUTLASTED
            case "digest_in_memory":
                return (len(CONTENT), b"right") if self.in_memory else (ABSENT, b"")
            case "read" if self.in_memory:
                offset, size_bytes = args
                self.buffer[:size_bytes] = CONTENT[offset : offset + size_bytes]
                return size_bytes
        return ABSENT


def beside(worker: Worker) -> Connection:
    @asynccontextmanager
    async def reader() -> AsyncIterator[Worker]:
        yield worker

    reads = SimpleNamespace(note=lambda _: None)
    return cast("Connection", SimpleNamespace(clients=SimpleNamespace(reader=reader), reads=reads))


MEMBER = Member(group_id="g", key="k", size_bytes=len(CONTENT), sha256=bytes(32))


async def test_what_a_refused_read_has_brought_into_memory_is_read_from_there() -> None:
    worker = Worker(promotes=True)
    target = bytearray(6)
    await Reader(beside(worker), MEMBER, "1").read_into(6, memoryview(target))
    assert (bytes(target), worker.asked) == (CONTENT[6:], ["read", "fetch", "read"])
    worker = Worker(promotes=True)
    assert await digest_of(beside(worker), MEMBER, None) == b"right"
    assert worker.asked == ["digest_in_memory", Engine.fetch.__name__, "digest_in_memory"]


async def test_what_cannot_be_read_anywhere_says_why_and_what_to_set() -> None:
    reader = Reader(beside(Worker(promotes=False)), MEMBER, "1")
    with pytest.raises(TransientError, match="-706 OBJECT_HAS_LEASE") as refused:
        await reader.read_into(0, memoryview(bytearray(1)))
    with pytest.raises(TransientError, match="-706 OBJECT_HAS_LEASE"):
        await digest_of(beside(Worker(promotes=False)), MEMBER, None)
    assert "--default_kv_lease_ttl" in refused.value.todo
