"""Series of calls that hold a file open from one to the next.  Layer: a tier; runs in a worker.

Each step is one request of bounded size.  While a step moves bytes they are digested in a second
thread.  Invariants: the digest is of the very bytes that were written or read; a buffer is used
again only after it was digested; a draft that is not published is removed by `close`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from weightctl.adapters.shared import reading, writing
from weightctl.adapters.shared.files import FILE_FLAGS
from weightctl.adapters.shared.folders import group_folder
from weightctl.adapters.shared.streaming import BLOCK_BYTES, DigestThread
from weightctl.controller.errors import TransientError
from weightctl.controller.ports import Corrupt, Done, Outcome, Unknown

if TYPE_CHECKING:
    from weightctl.adapters.shared.drafts import Draft
    from weightctl.adapters.shared.reading import OpenReplica
    from weightctl.adapters.shared.root import Root
    from weightctl.controller.ports import Fence

FLUSH_BYTES = 64 * 1024 * 1024
"""Written bytes are brought to the medium after so many, so that no flush outlasts a deadline."""


class Writing:
    """A draft that is written piece by piece, sealed and published.  Raises as `writing` does."""

    def __init__(self, root: Root, draft: Draft) -> None:
        self._root = root
        self._draft: Draft | None = draft
        self._digest = DigestThread().__enter__()
        self._unflushed_bytes = 0

    def write(self, view: memoryview, offset: int) -> None:
        """Write the view to byte `offset`; it may be filled again afterwards."""
        draft = _open(self._draft)
        blocks = [view[start : start + BLOCK_BYTES] for start in range(0, len(view), BLOCK_BYTES)]
        for block in blocks:
            self._digest.feed(block)
        draft.write(view, offset)
        self._unflushed_bytes += len(view)
        if self._unflushed_bytes >= FLUSH_BYTES:
            os.fdatasync(draft.fd)
            self._unflushed_bytes = 0
        for _ in blocks:
            self._digest.done.get()

    def seal(self) -> Corrupt | None:
        """Check the draft against its member and bring it to the medium."""
        return writing.seal(self._root, _open(self._draft), self._digest.result())

    def publish(self, fence: Fence) -> Outcome:
        """Give the draft its name and see by a fresh open that it is there."""
        draft = _open(self._draft)
        writing.publish(self._root, draft, fence)
        self._draft = None
        (outcome,) = writing.settle(self._root, [draft])
        return self._seen(draft) if isinstance(outcome, Done) else outcome

    def close(self) -> None:
        """Remove the draft unless it was published."""
        self._digest.__exit__()
        draft, self._draft = self._draft, None
        if draft is not None:
            writing.discard(self._root, draft)

    def _seen(self, draft: Draft) -> Outcome:
        try:
            with (
                self._root.medium.opened() as root_fd,
                group_folder(root_fd, draft.group) as group_fd,
            ):
                fd = os.open(str(draft.name), FILE_FLAGS, dir_fd=group_fd)
                try:
                    size_bytes = os.fstat(fd).st_size
                finally:
                    os.close(fd)
        except (OSError, TransientError) as error:
            return Unknown(detail=f"published, but not seen when opened anew: {error}")
        if size_bytes != draft.member.size_bytes:
            return Unknown(detail=f"published, but seen with {size_bytes} bytes")
        return Done(instance_id=draft.name.instance_id, moved_bytes=size_bytes)


class Verifying:
    """A replica that is read back piece by piece through a buffer.  Raises as `reading` does."""

    def __init__(self, root: Root, replica: OpenReplica, buffer: memoryview) -> None:
        self._root = root
        self._replica = replica
        self._at = 0
        self._digest = DigestThread().__enter__()
        for start in range(0, len(buffer), BLOCK_BYTES):
            self._digest.done.put(buffer[start : start + BLOCK_BYTES])

    def digest(self, size_bytes: int) -> None:
        """Read and digest the next bytes."""
        end = self._at + size_bytes
        while self._at < end:
            block = self._digest.done.get()  # digested, so it can be filled again
            view = block[: min(BLOCK_BYTES, end - self._at)]
            self._replica.read_into(view, self._at)
            self._digest.feed(view)
            self._at += len(view)

    def verdict(self) -> Outcome:
        """What the bytes that were read say."""
        replica, member = self._replica, self._replica.member
        got = self._digest.result()
        if got != member.sha256 or replica.size_bytes != member.size_bytes:
            return Corrupt(expected=member.sha256, got=got, instance_id=replica.instance_id)
        return Done(instance_id=replica.instance_id, moved_bytes=replica.size_bytes)

    def close(self) -> None:
        """Close the replica."""
        self._digest.__exit__()
        reading.close_replica(self._root, self._replica)


def _open(draft: Draft | None) -> Draft:
    if draft is None:
        raise TransientError("the draft is closed", "it was published or given up", "begin anew")
    return draft
