"""A draft of a replica lets go of what it holds, whatever the file system says."""

import errno
import os
from pathlib import Path

import pytest

from weightctl.adapters.conformance.suite.material import member_of
from weightctl.adapters.shared.drafts import Draft
from weightctl.adapters.shared.layout import StoredName
from weightctl.adapters.shared.room import Reservation


def test_an_error_of_closing_a_draft_leaves_no_descriptor_open(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    group_fd = os.open(tmp_path, os.O_RDONLY)
    draft = Draft(
        member=member_of("key", b"content"),
        group="group",
        name=StoredName(text="key", sha256_hex="0" * 64, instance_id="0" * 16),
        group_fd=group_fd,
        fd=fd,
        reservation=Reservation(partial_name="key.partial", size_bytes=7),
    )
    os.close(fd)  # as where a full quota is told at the end: closed it is, and an error comes
    draft.close()
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(group_fd)
