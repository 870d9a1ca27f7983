"""Moving planned ranges: every reader, destination and chunk size gives the same bytes."""

import asyncio
import hashlib
import os
from contextlib import AbstractAsyncContextManager, closing, nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.stored_models import Objects, StoredModel, stored
from weightctl.controller.core.observation import Member
from weightctl.controller.core.ranges import RangePlan, TensorSlice, plan_ranges
from weightctl.controller.errors import IntegrityError, TransientError
from weightctl.controller.weightstore import digesting
from weightctl.controller.weightstore import transfer as module
from weightctl.controller.weightstore.transfer import Destination, ObjectJob, Transfer


class Memory:
    """Targets in memory, with or without windows, several targets in one space."""

    def __init__(self, plan: RangePlan, *, windows: bool) -> None:
        self.bases, end = [], 0
        for target in plan.targets:
            self.bases.append(end)
            end += target.nbytes
        self.space = bytearray(end)
        self._windows = windows

    def locate(self, target: int) -> tuple[int, int]:
        return 0, self.bases[target]

    def window(self, space: int, position: int, nbytes: int) -> memoryview | None:
        return memoryview(self.space)[position : position + nbytes] if self._windows else None

    def write(self, space: int, position: int, data: memoryview) -> None:
        self.space[position : position + len(data)] = data


class Charges:
    """A bandwidth that only counts."""

    def __init__(self) -> None:
        self.charged: list[int] = []

    async def charge(self, size_bytes: int) -> None:
        self.charged.append(size_bytes)


class OneTier:
    """A tier of which only `open` is used: from a descriptor or piece by piece."""

    def __init__(self, objects: Objects, *, local: bool) -> None:
        self._objects = objects
        self._descriptors: dict[str, int] = {}
        self.profile = type("Profile", (), {"name": "test"})
        for key, content in objects.items() if local else ():
            self._descriptors[key] = os.memfd_create("object")
            os.write(self._descriptors[key], content)

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)

    def open(self, member: Member) -> AbstractAsyncContextManager[Any]:
        return nullcontext(Reader(self._objects[member.key], self._descriptors.get(member.key)))


class Reader:
    def __init__(self, content: bytes, descriptor: int | None) -> None:
        self.size_bytes = len(content)
        self._content = content
        self._descriptor = descriptor

    async def read_into(self, offset: int, buffer: memoryview) -> None:
        buffer[:] = self._content[offset : offset + len(buffer)]

    def fileno(self) -> int | None:
        return self._descriptor


def jobs(plan: RangePlan, objects: Objects) -> list[ObjectJob]:
    """Group the reads by object; the members' digests are those of `objects`."""
    found = []
    for key in dict.fromkeys(read.object_key for read in plan.reads):
        member = Member(
            group_id="g",
            key=key,
            size_bytes=len(objects[key]),
            sha256=hashlib.sha256(objects[key]).digest(),
        )
        reads = [read for read in plan.reads if read.object_key == key]
        found.append(ObjectJob(member=member, reads=reads))
    return found


def move(
    plan: RangePlan,
    objects: Objects,
    destination: Destination,
    *,
    local: bool,
    recorded: Objects | None = None,
    limit: Charges | None = None,
) -> list[bool]:
    """Carry out a whole plan; give which objects were verified against what is recorded."""
    with closing(OneTier(objects, local=local)) as opened:
        tier: Any = opened
        transfer = Transfer(
            plan=plan, destination=destination, verify=True, between=lambda moved: None
        )

        async def run() -> list[bool]:
            return [
                await transfer.copy(job, tier, limit) for job in jobs(plan, recorded or objects)
            ]

        return asyncio.run(run())


@given(
    model=stored(),
    chunk_bytes=st.integers(1, 40),
    gap_bytes=st.sampled_from([0, 3, 1000]),
    overlap_bytes=st.sampled_from([0, 1 << 30]),
    local=st.booleans(),
    windows=st.booleans(),
    limited=st.booleans(),
)
def test_every_way_of_moving_gives_the_same_bytes(
    *,
    model: StoredModel,
    chunk_bytes: int,
    gap_bytes: int,
    overlap_bytes: int,
    local: bool,
    windows: bool,
    limited: bool,
) -> None:
    described, objects, arrays = model
    limit = Charges() if limited else None
    wanted = [TensorSlice(tensor_id=tensor.tensor_id) for tensor in described.tensors]
    plan = plan_ranges(described, wanted, gap_bytes=gap_bytes)
    destination = Memory(plan, windows=windows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE_BYTES", chunk_bytes)
        patch.setattr(module, "LOCAL_CHUNK_BYTES", chunk_bytes)
        patch.setattr(module, "HOP_BYTES", 7 * chunk_bytes)
        patch.setattr(digesting, "OVERLAP_BYTES", overlap_bytes)
        verified = move(plan, objects, destination, local=local, limit=limit)
    if limit is not None:
        assert sum(limit.charged) == plan.read_bytes
        assert max(limit.charged, default=0) <= max(chunk_bytes, 1)
    assert bytes(destination.space) == b"".join(values.tobytes() for values in arrays)
    assert verified == [job.whole for job in jobs(plan, objects)]


@given(stored(), st.booleans())
def test_one_flipped_bit_in_a_whole_object_is_found(model: StoredModel, local: bool) -> None:
    described, objects, _ = model
    wanted = [TensorSlice(tensor_id=tensor.tensor_id) for tensor in described.tensors]
    plan = plan_ranges(described, wanted, gap_bytes=1000)
    whole = [job for job in jobs(plan, objects) if job.whole]
    if not whole:
        return
    key = whole[0].member.key
    damaged = {**objects, key: bytes([objects[key][0] ^ 128]) + objects[key][1:]}
    with pytest.raises(IntegrityError, match=key):
        move(plan, damaged, Memory(plan, windows=True), local=local, recorded=objects)


def test_local_replica_that_shrinks_while_it_is_read_is_a_fault_of_the_replica() -> None:
    descriptor = os.memfd_create("short")
    try:
        os.write(descriptor, b"12345")
        with pytest.raises(TransientError, match="ended at byte 5"):
            module._read_fully(descriptor, 0, memoryview(bytearray(6)))
    finally:
        os.close(descriptor)
