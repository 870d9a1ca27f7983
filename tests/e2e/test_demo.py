"""The demo as a whole, with kills; `make demo-soak` tells it twenty times on the real model."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.cli import WEIGHTCTL, checked
from tests.support.models import write_model
from weightctl.controller.config.places import memory_path

MIB = 1024 * 1024
ROUNDS = int(os.environ.get("DEMO_ROUNDS", "2"))
"""How often the story is told; each telling kills the loop five times."""
STEPS = ["import", "evict", "rehydrate", "repair", "lease", "delete", "op-log"]
ENVIRON = {key: value for key, value in os.environ.items() if key[:10] != "WEIGHTCTL_"}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    chance = random.Random(5)
    tensors = {f"layer.{n}": ("U8", (1024, 1024), chance.randbytes(MIB)) for n in range(24)}
    return write_model(tmp_path / "model.safetensors", tensors)


def memory_folder(tmp_path: Path) -> Path:
    """Where the demo that runs in `tmp_path` keeps its memory tier."""
    (folder,) = tmp_path.glob("weightctl-demo-*")
    return Path(memory_path(str(folder)))


def test_the_demo_passes_with_a_kill_in_each_operation(model: Path, tmp_path: Path) -> None:
    environ = ENVIRON | {"TMPDIR": str(tmp_path)}
    command = [*WEIGHTCTL, "demo", str(model), "--rounds", str(ROUNDS), "-o", "json"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = checked(json.loads(done.stdout))
    assert document["ok"]
    assert [step["name"] for step in document["results"]] == STEPS
    kills = {step["name"]: step["kills"] for step in document["results"]}
    assert [kills[step] for step in ("import", "repair", "delete")] == [ROUNDS] * 3
    assert [kills[step] for step in ("lease", "op-log")] == [0, 0]
    assert min(kills["evict"], kills["rehydrate"]) >= ROUNDS, "one more for each that was too late"
    assert [step["residency"] for step in document["results"]][:3] == ["HOT", "COLD", "HOT"]
    assert f"seed of the kills: {document['seed']}" in done.stderr
    assert list(tmp_path.glob("weightctl-*")) == []


def test_forced_kills_hit_inside_each_operation(model: Path, tmp_path: Path) -> None:
    environ = ENVIRON | {"TMPDIR": str(tmp_path)}
    points = ("--kill-at", "0.25", "--kill-at", "0.7")
    command = [*WEIGHTCTL, "demo", str(model), *points, "-o", "json"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = checked(json.loads(done.stdout))
    killed = {step["name"]: step["killed"] for step in document["results"] if step["killed"]}
    assert list(killed) == [step for step in STEPS if step not in {"lease", "op-log"}]
    assert [kills[0]["point"] for kills in killed.values()] == [0.25, 0.7, 0.25, 0.7, 0.25]
    for step, (kill, *_) in killed.items():
        assert 0 < kill["done"] < kill["total"], (step, kill)


def test_the_demo_says_what_is_wrong_and_fails(model: Path, tmp_path: Path) -> None:
    """A model that changes after it was read cannot equal what was loaded."""
    command = [*WEIGHTCTL, "demo", str(model), "--no-kill"]
    environ = ENVIRON | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stderr is not None
        assert child.stdout is not None
        while not child.stderr.readline().startswith("model: "):
            pass
        with model.open("r+b") as stream:
            stream.seek(-1, os.SEEK_END)
            last = stream.read(1)[0]
            stream.seek(-1, os.SEEK_END)
            stream.write(bytes([last ^ 1]))
        said = child.stderr.read()
        shown = child.stdout.read()
    assert child.returncode == 1
    assert "loaded tensors differ from the source" in said
    assert "layer.23" in said
    assert "FAILED" in shown


def test_a_demo_that_is_interrupted_cleans_up(model: Path, tmp_path: Path) -> None:
    environ = ENVIRON | {"TMPDIR": str(tmp_path)}
    command = [*WEIGHTCTL, "demo", str(model)]
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        while "evict" not in child.stderr.readline():
            pass
        memory = memory_folder(tmp_path)
        assert memory.is_dir()
        child.send_signal(signal.SIGTERM)
        child.stderr.read()
    assert child.returncode == 130
    until = time.monotonic() + 240
    while memory.exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert not memory.exists()
    assert list(tmp_path.glob("weightctl-*")) == []


def test_the_demo_without_a_model_says_where_to_get_one(tmp_path: Path) -> None:
    command = [*WEIGHTCTL, "demo", str(tmp_path / "none.safetensors")]
    done = subprocess.run(command, env=ENVIRON, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "none.safetensors" in done.stderr
