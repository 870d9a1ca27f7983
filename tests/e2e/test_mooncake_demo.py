"""`make demo-mooncake` with a small model: each step is confirmed by a real Master."""

import subprocess
import sys
from pathlib import Path

from tests.support.models import random_tensors, write_model
from tests.support.mooncake.lab import needs_wheel

pytestmark = needs_wheel


def test_the_demo_shows_the_whole_life_of_a_model_and_the_plan_before_each_step(
    tmp_path: Path,
) -> None:
    model = write_model(tmp_path / "model.safetensors", random_tensors(rows=512))
    done = subprocess.run(
        [sys.executable, "-m", "weightctl.adapters.mooncake.lab.demo", str(model)],
        capture_output=True,
        text=True,
        check=False,
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    for step in ("import", "evict", "rehydrate", "lease", "delete"):
        assert f"\n== {step}: " in told
    for verb in ("evict", "rehydrate", "delete"):
        assert told.index(f"{verb} demo/model/main@1 --dry-run") < told.index("the Master says: 0 ")
    assert told.rstrip().endswith("every step was confirmed by the Master")
