"""`make demo-mooncake`, with the real model: each step is confirmed by a real Master."""

import re
import subprocess
import sys

from tests.support.models import real_model
from tests.support.mooncake.lab import needs_wheel

pytestmark = needs_wheel

STEPS = {
    "import": "import demo/model/main@1 {} --dry-run",
    "load": "plan demo/model/main@1",
    "other reader": "plan demo/model/main@1",
    "evict": "evict demo/model/main@1 --dry-run",
    "rehydrate": "rehydrate demo/model/main@1 --dry-run",
    "lease": "evict demo/model/main@1 --dry-run",
    "delete": "delete demo/model/main@1 --dry-run",
}
"""The steps in their order, and the plan that each begins with."""
AFTER = {"evict": (3, 0, 3), "delete": (0, 0, 0)}
"""Objects, in memory, on disks; (3, 3, 3) after every other step."""


def test_the_demo_shows_the_whole_life_of_a_model_and_the_plan_before_each_step() -> None:
    model = real_model()
    done = subprocess.run(
        [sys.executable, "-m", "weightctl.adapters.mooncake.lab.demo", str(model)],
        capture_output=True,
        text=True,
        check=False,
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    head, *steps = re.split(r"^== ", told, flags=re.MULTILINE)
    assert not head.strip()
    assert [step.partition(":")[0] for step in steps] == list(STEPS), told
    for (name, plan), step in zip(STEPS.items(), steps, strict=True):
        first = next(line for line in step.splitlines() if line.startswith("$ "))
        assert first == f"$ weightctl {plan.format(model)}"
        assert "the Master says: nothing has changed, and no lease was taken" in step
        counts = re.findall(r"the Master says: (\d+) objects, (\d+) in memory, (\d+) on", step)
        assert tuple(map(int, counts[-1])) == AFTER.get(name, (3, 3, 3)), step
    assert told.rstrip().endswith("every step was confirmed by the Master")
