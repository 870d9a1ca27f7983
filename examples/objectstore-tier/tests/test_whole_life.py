"""A model's whole life through the command line, with this tier as the cold one.

The package must be installed, for weightctl finds tiers by their entry points.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from buckets import KEYS, BucketHarness, LocalS3

from weightctl.controller.weightstore.safetensors import TensorEntry, encode_header

IDENTITY = "prod/model/v1@1"
PATIENCE_S = 240


class Weightctl:
    """The command, over a state directory and a bucket of its own."""

    def __init__(self, folder: Path, harness: BucketHarness) -> None:
        self._folder, self._options = folder, harness.options
        self._config = folder / "weightctl.toml"
        self.configure()

    def configure(self, **options: object) -> None:
        """From now on with these options of the tier in place of its usual ones."""
        folder, wanted = self._folder, {**self._options, **options}
        options_text = "\n".join(f"{name} = {json.dumps(it)}" for name, it in wanted.items())
        self._config.write_text(
            f'state_dir = "{folder / "state"}"\n'
            "[import]\npayload_bytes = 4096\n"
            f'[[tier]]\nname = "memory"\nkind = "memory"\npath = "{folder / "memory"}"\n'
            f'[[tier]]\nname = "bucket"\nkind = "objectstore"\n{options_text}\n'
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "weightctl.controller.cli.main", *words, "-o", "json"]
        return subprocess.Popen(
            [*argv, "--config", str(self._config)],
            env={**os.environ, **KEYS},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ended(self, child: subprocess.Popen[str], code: int = 0) -> dict[str, Any]:
        with child:
            try:
                out, err = child.communicate(timeout=PATIENCE_S)
            finally:
                child.kill()
        assert child.returncode == code, out + err
        for secret in KEYS.values():
            assert secret not in out + err
        return dict(json.loads(out))

    def __call__(self, *words: str) -> dict[str, Any]:
        return self.ended(self.start(*words))


@pytest.fixture
def weightctl(harness: BucketHarness, tmp_path: Path) -> Weightctl:
    return Weightctl(tmp_path, harness)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Three tensors; the second is in several payloads."""
    path = tmp_path / "model.safetensors"
    entries, data = [], b""
    for name, count in (("embedding", 100), ("layer", 9000), ("scale", 1)):
        content = b"".join(
            (count * number % 65521).to_bytes(2, "little") for number in range(count)
        )
        stop = len(data) + len(content)
        entries.append(
            TensorEntry(name=name, dtype="U16", shape=(count,), start=len(data), stop=stop)
        )
        data += content
    path.write_bytes(encode_header(entries, {"format": "pt"}) + data)
    return path


def replicas(harness: BucketHarness) -> Sequence[str]:
    return [name for name in harness.names() if name.startswith("replicas/")]


def test_a_model_lives_in_memory_and_the_bucket(
    weightctl: Weightctl, harness: BucketHarness, model: Path, tmp_path: Path
) -> None:
    shown = {item["name"]: item for item in weightctl("tiers")["items"]}
    assert "not set up yet" in shown["bucket"]["problem"]
    weightctl("import", IDENTITY, str(model))
    assert weightctl("evict", IDENTITY, "--wait")["residency"] == "COLD"
    assert len(replicas(harness)) > 3
    assert in_memory(tmp_path) == []
    load(weightctl, model, tmp_path / "cold")
    assert weightctl("rehydrate", IDENTITY, "--wait")["residency"] == "HOT"
    load(weightctl, model, tmp_path / "hot")
    assert weightctl("delete", IDENTITY, "--wait", "--yes")["availability"] == "DELETED"
    assert replicas(harness) == []
    assert harness.uploads() == []
    assert weightctl("tiers")["items"][1]["usedBytes"] == 0


def test_an_eviction_waits_for_a_stopped_object_store_and_ends_when_it_goes_on(
    weightctl: Weightctl, harness: BucketHarness, server: LocalS3, model: Path, tmp_path: Path
) -> None:
    weightctl("import", IDENTITY, str(model))
    before = in_memory(tmp_path)
    assert len(before) > 3
    server.send(signal.SIGSTOP)
    weightctl.configure(deadline_s=1)
    try:
        evicting = weightctl.start("evict", IDENTITY, "--wait")
        until_s = time.monotonic() + PATIENCE_S
        while (weightctl("get", IDENTITY)["operation"] or {}).get("operation") != "EVICTING":
            assert time.monotonic() < until_s
        with pytest.raises(subprocess.TimeoutExpired):
            evicting.wait(timeout=3)
        assert in_memory(tmp_path) == before
    finally:
        server.send(signal.SIGCONT)
    assert weightctl.ended(evicting)["residency"] == "COLD"
    weightctl.configure()
    assert in_memory(tmp_path) == []
    load(weightctl, model, tmp_path / "cold")


def in_memory(folder: Path) -> Sequence[Path]:
    """The replicas in the memory tier."""
    return sorted(path for path in (folder / "memory").glob("*/*/*") if path.is_file())


def load(weightctl: Weightctl, model: Path, folder: Path) -> None:
    """Load it, and compare every byte with its source."""
    weightctl("load", IDENTITY, str(folder))
    assert (folder / "model.safetensors").read_bytes() == model.read_bytes()
