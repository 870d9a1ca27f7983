"""A replica whose opening or closing fails is held by nobody, and no descriptor stays."""

import errno
import os
from pathlib import Path

import pytest
from anyio import to_thread

from tests.support.file_media import FileHarness
from weightctl.adapters.conformance.suite.material import drop_item, fence, kinds, store_one
from weightctl.adapters.shared import reading


@pytest.mark.parametrize("call", ["fstat", "close"])
async def test_a_call_that_fails_around_a_reading_lets_go_of_the_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    harness = FileHarness("weightctl.adapters.local_disk:factory", tmp_path)
    async with harness.tier() as tier:
        member = await store_one(tier, "payload", b"content")
        before = await to_thread.run_sync(os.listdir, "/proc/self/fd")

        class Failing:
            """`os`, of which one call fails once, after it was done where it ends something."""

            def __init__(self) -> None:
                self.failed = False

            def __getattr__(self, name: str) -> object:
                real = getattr(os, name)
                if name != call or self.failed:
                    return real

                def fail(fd: int) -> None:
                    self.failed = True
                    if name == "close":
                        real(fd)
                    raise OSError(errno.EIO, os.strerror(errno.EIO))

                return fail

        with monkeypatch.context() as patched:
            patched.setattr(reading, "os", Failing())
            assert kinds(await tier.verify([member])) == ["Retry"]
        assert await to_thread.run_sync(os.listdir, "/proc/self/fd") == before
        assert kinds(await tier.drop([await drop_item(tier, member)], fence())) == ["Done"]
