"""Small files of a tier are written as a whole, whatever becomes of a request."""

import os
from pathlib import Path

from weightctl.adapters.shared.files import write_new


def test_a_request_that_a_cut_off_file_system_sent_twice_is_still_ours(tmp_path: Path) -> None:
    (tmp_path / "marker.drawn").write_bytes(b"")  # made by the first delivery
    folder_fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert write_new(folder_fd, "marker", b"content", fresh="drawn", durable=True)
        assert not write_new(folder_fd, "marker", b"other", fresh="again", durable=True)
    finally:
        os.close(folder_fd)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"marker": b"content"}
