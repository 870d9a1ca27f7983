"""SHA-256 of the payloads of a source, a few threads at a time.  Layer: weightstore."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from anyio import to_thread

from weightctl.controller.ports import PIECE_BYTES
from weightctl.controller.weightstore.parallel import for_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from weightctl.controller.weightstore.layout import Payload
    from weightctl.controller.weightstore.source import ModelSource

GROUP_BYTES = 4 * PIECE_BYTES
GROUP_ITEMS = 1024


async def digest_payloads(
    source: ModelSource, payloads: Sequence[Payload], workers: int, done: Callable[[int], None]
) -> list[bytes]:
    """Raw SHA-256 of each payload, in order; `done` hears of the bytes.  Raises SourceError."""
    digests: dict[str, bytes] = {}

    async def digest(group: list[Payload]) -> None:
        digests.update(await to_thread.run_sync(_digest_group, source, group))
        done(sum(payload.nbytes for payload in group))

    await for_each(_groups(payloads), workers, digest)
    return [digests[payload.key] for payload in payloads]


def _groups(payloads: Sequence[Payload]) -> Iterator[list[Payload]]:
    """Payloads for one thread hop each: a large one alone, or many small ones."""
    group: list[Payload] = []
    size = 0
    for payload in payloads:
        group.append(payload)
        size += payload.nbytes
        if size >= GROUP_BYTES or len(group) == GROUP_ITEMS:
            yield group
            group, size = [], 0
    if group:
        yield group


def _digest_group(source: ModelSource, group: Sequence[Payload]) -> dict[str, bytes]:
    buffer = memoryview(bytearray(min(PIECE_BYTES, max(payload.nbytes for payload in group))))
    digests: dict[str, bytes] = {}
    for payload in group:
        digest = hashlib.sha256()
        for done in range(0, payload.nbytes, len(buffer)):
            piece = buffer[: min(len(buffer), payload.nbytes - done)]
            source.read_into(source.files[payload.file], payload.offset + done, piece)
            digest.update(piece)
        digests[payload.key] = digest.digest()
    return digests
