"""A real store on real files under a hand-moved clock, and short names for its usual calls."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.virtual_time import SeededEntropy, VirtualClock
from tests.support.weights import LOGICAL_BYTES, PAYLOADS, identity, reference
from weightctl.controller.core.group import GroupSnapshot
from weightctl.controller.core.identity import (
    Identity,
    manifest_key,
    payload_group_id,
    payload_prefix,
)
from weightctl.controller.core.observation import Member, Members
from weightctl.controller.core.records import DataType, RevisionMetadata
from weightctl.controller.errors import ErrorCode, WeightError
from weightctl.controller.store.gate import CapabilityGate
from weightctl.controller.store.store import WeightMetadataStore

GATED = CapabilityGate(enable_ha=True, enable_oplog=True, backend="etcd")
"""The configuration that needs a confirmation and has none."""


@asynccontextmanager
async def opened(
    folder: Path, clock: VirtualClock | None = None, gate: CapabilityGate | None = None
) -> AsyncIterator[WeightMetadataStore]:
    """Open the store of a folder; without a clock on one that stands still."""
    used = VirtualClock(wall_ms=1000) if clock is None else clock
    entropy = SeededEntropy(1)
    async with WeightMetadataStore.open(folder, clock=used, entropy=entropy, gate=gate) as store:
        yield store


async def begin(store: WeightMetadataStore, of: Identity) -> RevisionMetadata:
    return await store.begin_import(
        identity=of, expected_payload_count=PAYLOADS, expected_logical_bytes=LOGICAL_BYTES
    )


async def commit(store: WeightMetadataStore, of: Identity) -> RevisionMetadata:
    """Commit with the records' checks alone."""
    return await store.commit_import(
        identity=of, expected_metadata_generation=1, manifest=reference(of)
    )


async def published(store: WeightMetadataStore, of: Identity) -> RevisionMetadata:
    """Give a READY/HOT record at generation 2."""
    await begin(store, of)
    return await commit(store, of)


async def deleted(store: WeightMetadataStore, of: Identity) -> RevisionMetadata:
    """Take a READY revision at generation 2 to its tombstone."""
    await store.delete_revision(identity=of, expected_metadata_generation=2)
    return await store.finish_delete(identity=of, expected_metadata_generation=3)


async def refused(code: ErrorCode, call: Callable[[], object]) -> WeightError:
    """Check that an asynchronous call is refused with a code, in three parts for people."""
    with pytest.raises(WeightError) as caught:
        await call()  # type: ignore[misc]
    error = caught.value
    assert error.code is code, f"expected {code.name}, got {error}"
    assert error.what
    assert error.why
    assert error.todo
    return error


def many(count: int, resource: str = "llama") -> list[Identity]:
    return [identity(f"{resource}-{number}", 1) for number in range(count)]


def payload_key(of: Identity, number: int = 0) -> str:
    return f"{payload_prefix(of)}{number:05}"


def payload(of: Identity, number: int = 0, size: int = LOGICAL_BYTES) -> Member:
    return Member(
        group_id=payload_group_id(of),
        key=payload_key(of, number),
        size_bytes=size,
        sha256=number.to_bytes(32, "big"),
    )


def manifest(of: Identity, size: int = 500) -> Member:
    return Member(
        group_id=payload_group_id(of),
        key=manifest_key(of),
        size_bytes=size,
        sha256=b"m" * 32,
        data_type=DataType.METADATA,
    )


def seen(members: Members, unreadable: Sequence[int] = ()) -> GroupSnapshot:
    """Give a fresh look at a group in which all but some members are readable."""
    readable = bytearray(b"\1" * len(members))
    for index in unreadable:
        readable[index] = 0
    return GroupSnapshot(members=members, readable=bytes(readable))
