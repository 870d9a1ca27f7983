"""Moving bytes: what is written is what is digested, in order, within bounded memory."""

import hashlib
import threading
from pathlib import Path

import pytest

from weightctl.adapters.conformance.suite.material import content_of
from weightctl.adapters.shared.streaming import (
    BLOCK_BYTES,
    Buffers,
    DigestThread,
    copy_digested,
    reader_of,
)
from weightctl.controller.errors import TransientError
from weightctl.controller.ports import PIECE_BYTES

SIZES_BYTES = (
    0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, PIECE_BYTES, PIECE_BYTES + 1,
    2 * PIECE_BYTES + 3,
)  # fmt: skip


class Ends:
    """Both ends of a copy in memory."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.written = bytearray(len(content))
        self.charged: list[int] = []

    def read(self, view: memoryview, offset: int) -> None:
        assert 0 < len(view) <= BLOCK_BYTES
        view[:] = self.content[offset : offset + len(view)]

    def write(self, view: memoryview, offset: int) -> None:
        self.written[offset : offset + len(view)] = view

    def gate(self, size_bytes: int) -> None:
        self.charged.append(size_bytes)


@pytest.mark.parametrize("size_bytes", SIZES_BYTES)
def test_all_bytes_are_written_digested_and_charged(size_bytes: int) -> None:
    ends = Ends(content_of(size_bytes))
    digest = copy_digested(ends.read, ends.write, size_bytes, buffers=Buffers(1), gate=ends.gate)
    assert digest == hashlib.sha256(ends.content).digest()
    assert ends.written == ends.content
    assert sum(ends.charged) == size_bytes
    assert max(ends.charged) <= PIECE_BYTES


@pytest.mark.parametrize("fails", ["read", "write", "gate"])
def test_a_failing_end_gives_the_buffer_back_and_ends_the_thread(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, buffers, threads = Ends(content_of(PIECE_BYTES * 2)), Buffers(1), {*threading.enumerate()}

    def fail(*_: object) -> None:
        raise OSError(5, "failed")

    with monkeypatch.context() as patched:
        patched.setattr(ends, fails, fail)
        with pytest.raises(OSError, match="failed"):
            copy_digested(ends.read, ends.write, PIECE_BYTES * 2, buffers=buffers, gate=ends.gate)
    assert {*threading.enumerate()} <= threads, "others' idle ones may have ended meanwhile"
    copy_digested(ends.read, ends.write, PIECE_BYTES * 2, buffers=buffers, gate=ends.gate)
    assert ends.written == ends.content


def test_no_more_buffers_are_in_use_than_there_are() -> None:
    buffers, waiting = Buffers(1), threading.Event()
    order: list[str] = []

    def second() -> None:
        waiting.set()
        with buffers.taken():
            order.append("second")

    with buffers.taken() as buffer:
        thread = threading.Thread(target=second)
        thread.start()
        waiting.wait()
        order.append("first")
        assert len(buffer) == PIECE_BYTES
    thread.join()
    assert order == ["first", "second"]


def test_a_digest_thread_digests_in_the_order_fed() -> None:
    blocks = [content_of(1000, seed=seed) for seed in range(50)]
    with DigestThread() as digest:
        for block in blocks:
            digest.feed(memoryview(block))
        assert digest.result() == hashlib.sha256(b"".join(blocks)).digest()


def test_a_file_that_is_too_short_is_no_success(tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(b"12345")
    with path.open("rb") as file:
        read = reader_of(file.fileno(), "the source")
        buffer = bytearray(5)
        read(memoryview(buffer), 0)
        assert buffer == b"12345"
        with pytest.raises(TransientError, match="the source"):
            read(memoryview(buffer), 1)
