"""Cases of distinction: speed, types, a long run.  Layer: conformance.

They depend on the machine and on time, so they stand outside the suite; `adapter check` adds them.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import pytest
from anyio import to_thread

from weightctl.adapters.conformance.grades import Grade
from weightctl.adapters.conformance.report import UNTRIED
from weightctl.adapters.conformance.simulation.profiles import play
from weightctl.adapters.conformance.suite.cases import TierCases
from weightctl.adapters.conformance.suite.harness import TierHarness
from weightctl.adapters.conformance.suite.life import live
from weightctl.adapters.conformance.suite.material import (
    content_of,
    fence,
    item_of,
    kinds,
    member_of,
)
from weightctl.controller.clock import SystemClock
from weightctl.controller.ports import PIECE_BYTES, Tier

Record = Callable[[str, object], None]

MOVED_BYTES = 8 * PIECE_BYTES
SHARE = 0.5
"""Of what is declared, or of the machine's own floor where that is lower."""
_MIB = 1024**2
_FIRST_LONG_SEED = 1000
_SEEDS_AT_ONCE = 20


class ContractOfDistinction(TierCases):
    """What a grade of platinum needs beside the suite."""

    grade = Grade.PLATINUM
    soak_s: ClassVar[float] = 0.0

    async def test_bytes_move_at_half_of_the_declared_speed(
        self, tier: Tier, harness: TierHarness, record_property: Record
    ) -> None:
        clock = SystemClock()
        content = content_of(MOVED_BYTES)
        member = member_of("payload", content)
        began_s = clock.monotonic_s()
        assert kinds(await tier.store([item_of(member, content)], fence())) == ["Done"]
        stored_s = clock.monotonic_s()
        assert kinds(await tier.verify([member])) == ["Done"]
        verified_s = clock.monotonic_s()
        await to_thread.run_sync(_floor, content, harness.folder / "floor")
        floor_s = clock.monotonic_s()
        store, verify, floor = (
            MOVED_BYTES / max(seconds, 1e-9)
            for seconds in (stored_s - began_s, verified_s - stored_s, floor_s - verified_s)
        )
        declared = tier.profile.bandwidth_bytes_per_s
        record_property(
            "hint",
            f"store {store / _MIB:.0f} MiB/s, verify {verify / _MIB:.0f} MiB/s; declared"
            f" {declared / _MIB:.0f}; floor: hashing and writing a file, {floor / _MIB:.0f}",
        )
        assert declared > 0, "the profile states no bandwidth_bytes_per_s"
        assert min(store, verify) >= SHARE * min(declared, floor)

    def test_its_types_are_right(self, harness: TierHarness) -> None:
        if find_spec("mypy") is None:
            pytest.skip(f"{UNTRIED} mypy is not installed")
        module, _, attribute = harness.factory.partition(":")
        source = (
            f"from weightctl.controller.ports import TierFactory\n"
            f"from {module} import {attribute} as made\n"
            f"factory: TierFactory = made\n"
        )
        (harness.folder / "typed.py").write_text(source)
        argv = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull]
        path = os.pathsep.join(
            folder
            for folder in sys.path
            if Path(folder).is_dir()
            and "site-packages" not in folder
            and not folder.startswith(sys.base_prefix)
        )
        done = subprocess.run(  # noqa: S603 - ourselves
            [*argv, "--namespace-packages", "--explicit-package-bases", "typed.py"],
            cwd=harness.folder,
            env={**os.environ, "MYPYPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    async def test_a_long_run_under_faults_stays_right(
        self, tmp_path: Path, record_property: Record
    ) -> None:
        if not self.soak_s:
            pytest.skip(f"{UNTRIED} say how long, with --soak DURATION")
        clock = SystemClock()
        until_s = clock.monotonic_s() + self.soak_s
        lives = 0
        while clock.monotonic_s() < until_s or not lives:
            lives += 1
            folder = tmp_path / str(lives)
            await to_thread.run_sync(folder.mkdir)
            await live(self.harness_type(folder), _FIRST_LONG_SEED + lives)
        record_property(
            "hint", f"{lives} lives in {self.soak_s:g} s, seeds {_FIRST_LONG_SEED + 1} on"
        )

    async def test_a_long_run_of_histories_with_its_profile_breaks_no_rule(
        self, tier: Tier, record_property: Record
    ) -> None:
        if not self.soak_s:
            pytest.skip(f"{UNTRIED} say how long, with --soak DURATION")
        clock = SystemClock()
        until_s = clock.monotonic_s() + self.soak_s
        seed, histories, incidents = _FIRST_LONG_SEED, 0, 0
        while clock.monotonic_s() < until_s or not histories:
            seeds = range(seed, seed + _SEEDS_AT_ONCE)
            played = await to_thread.run_sync(play, tier.profile, seeds)
            if played.broken:
                pytest.fail(played.broken, pytrace=False)
            seed += _SEEDS_AT_ONCE
            histories += played.histories
            incidents += played.incidents
        record_property(
            "hint",
            f"{histories} histories with its profile, {incidents} incidents, in {self.soak_s:g} s,"
            f" seeds {_FIRST_LONG_SEED} on",
        )


def _floor(content: bytes, path: Path) -> None:
    """What one thread of this machine does: hash, write and sync the same bytes, read them back."""
    hashlib.sha256(content).digest()
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    path.read_bytes()
