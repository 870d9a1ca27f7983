"""The nof device read by a person: the listing, and a replica cut out with dd."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.nof_media import content_of, member
from tests.support.nof_tiers import away, dropping, item, nof
from weightctl.adapters.nof.dump import describe, main
from weightctl.controller.ports import Done, Fence

FENCE = Fence(holder="store-7", term=3, operation_id=1, generation=1)


def _by_dd(device: Path, key: str) -> bytes:
    """What a person gets who runs the printed commands."""
    assert shutil.which("dd") is not None
    script = "\n".join(describe(str(device), key))
    return subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout


async def test_replicas_are_listed_and_can_be_cut_out_with_dd(tmp_path: Path) -> None:
    device = tmp_path / "n.img"
    content = content_of("k", 1_000_001)
    async with nof(tmp_path) as tier:
        kept, hidden = await tier.store([item("k y", content), item("j", b"bad")], FENCE)
        assert isinstance(kept, Done)
        assert isinstance(hidden, Done)
        await tier.quarantine([dropping("j", hidden.instance_id)], FENCE)
        lines = await away(lambda: list(describe(str(device))))
        assert (await away(_by_dd, device, "k y"))[: len(content)] == content
    text = "\n".join(lines)
    assert f"{kept.instance_id} complete 1000001 {member('', content).sha256.hex()}" in text
    assert f"{hidden.instance_id} quarantined 3 " in text
    assert "used        246 blocks by 2 replicas" in text
    assert "in use, or not closed" in text
    assert "fence       store-7 term 3" in text


def test_what_is_no_device_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").write_bytes(b"x" * 4096)
    assert main([str(tmp_path / "none")]) == 1
    assert main([str(tmp_path)]) == 1
    assert main([]) == 2
    assert "use: " in capsys.readouterr().err
