"""The demo's steps, and what is verified in each.  Layer: cli."""

from __future__ import annotations

import shutil
import threading
import time
from typing import TYPE_CHECKING, Any

from weightctl.controller.api.client import RemoteError
from weightctl.controller.cli.demo.model import fingerprint
from weightctl.controller.cli.demo.sandbox import BANDWIDTH, DemoError
from weightctl.controller.cli.tables import table
from weightctl.controller.cli.units import duration_text, size_text
from weightctl.controller.clock import SystemClock
from weightctl.controller.core.identity import Identity
from weightctl.controller.core.records import Availability, Operation, Residency
from weightctl.controller.errors import UnknownOutcomeError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from weightctl.controller.api import documents as doc
    from weightctl.controller.cli.demo.model import Fingerprint
    from weightctl.controller.cli.demo.sandbox import Sandbox
    from weightctl.controller.ports import Entropy

IDENTITY = Identity(
    namespace="demo", resource_id="all-MiniLM-L6-v2", revision="main", weight_generation=1
)
DONE_S = 120.0
DELETE_S = 0.04
"""About how long the loop takes to delete; the other operations move bytes."""
_COLD = ("local_disk", "dfs", "nof")


class Story:
    """One telling, from import to tombstone; without `chance` nothing is killed."""

    def __init__(
        self,
        sandbox: Sandbox,
        source: Path,
        expected: Fingerprint,
        *,
        chance: Entropy | None,
        say: Callable[[str], None],
    ) -> None:
        self._sandbox = sandbox
        self._source = source
        self._expected = expected
        self._chance = chance
        self._say = say
        self._clock = SystemClock()
        self._kills = 0
        self.results: list[doc.DemoStep] = []

    def tell(self) -> None:
        """All steps in order; stops at the first that fails, which is in `results` too."""
        self._sandbox.start()
        steps = (
            ("import", "bring the model in: one copy in memory, one on disk", self._import),
            ("evict", "out of memory, once a cold copy has been read back", self._evict),
            ("rehydrate", "back into memory from the fastest good copy", self._rehydrate),
            ("repair", "as many cold copies as the policy asks: dfs and nof too", self._repair),
            ("lease", "a reader's lease holds off eviction and deletion", self._lease),
            ("delete", "every replica in every tier, then a tombstone", self._delete),
            ("op-log", "a clean stop, then the whole log is read and replayed", self._log),
        )
        for number, (name, about, step) in enumerate(steps, 1):
            self._say(f"\n[{number}/{len(steps)}] {name}: {about}")
            if not self._step(name, step):
                return

    def _step(self, name: str, step: Callable[[], str]) -> bool:
        started_s = self._clock.monotonic_s()
        self._kills = 0
        try:
            verified, ok = step(), True
        except (DemoError, RemoteError, UnknownOutcomeError) as failure:
            verified, ok = str(failure), False
        seconds = self._clock.monotonic_s() - started_s
        self._say(f"  {'verified' if ok else 'FAILED'} in {duration_text(seconds)}: {verified}")
        self.results.append(
            {
                "name": name,
                "ok": ok,
                "verified": verified,
                "kills": self._kills,
                "seconds": seconds,
                "residency": self._residency(),
                "usedBytes": self._used() if ok and name != "op-log" else {},
            }
        )
        return ok

    # --- steps ------------------------------------------------------------------------------------

    def _import(self) -> str:
        params = {"identity": str(IDENTITY), "source": str(self._source)}
        self._say(
            f"  plan: {len(self._expected.tensors)} tensors, {size_text(self._expected.size_bytes)}"
            " -> memory, local_disk"
        )
        if self._chance is not None:
            asking = threading.Thread(target=self._ask_in_vain, args=("import", params))
            asking.start()
            self._kill(self._chance.random() * self._expected.size_bytes / BANDWIDTH)
            asking.join()
            self._sandbox.start()
        report = self._sandbox.ask("import", params)
        if self._chance is not None:
            resumed = self._expected.size_bytes * 2 - report["movedBytes"]
            self._say(f"  resumed: {size_text(max(resumed, 0))} were there already")
        self._expect(Availability.READY, Residency.HOT)
        return f"READY, HOT; {self._tensors_equal()}"

    def _evict(self) -> str:
        self._operate("evict", self._expected.size_bytes / BANDWIDTH)
        self._expect(Availability.READY, Residency.COLD)
        self._expect_used("memory", empty=True)
        return f"COLD, memory empty; {self._tensors_equal()}"

    def _rehydrate(self) -> str:
        self._operate("rehydrate", self._expected.size_bytes / BANDWIDTH)
        self._expect(Availability.READY, Residency.HOT)
        self._expect_used("memory", empty=False)
        return f"HOT; {self._tensors_equal()}"

    def _repair(self) -> str:
        self._operate("repair", 2 * self._expected.size_bytes / BANDWIDTH)
        self._expect(Availability.READY, Residency.HOT)
        for tier in _COLD:
            self._expect_used(tier, empty=False)
        return f"3 cold copies of each member; {self._tensors_equal()}"

    def _lease(self) -> str:
        params = {"identity": str(IDENTITY), "holder": "demo reader", "ttl_ms": 60_000}
        lease = self._sandbox.ask("lease acquire", params)
        self._say(f"  lease {lease['leaseId']} of {lease['holder']}")
        for verb in ("delete", "evict"):
            self._expect_refusal(verb, {"identity": str(IDENTITY)}, "BUSY")
        self._sandbox.ask(
            "lease release", {"lease_id": lease["leaseId"], "tenant_id": IDENTITY.tenant_id}
        )
        return f"delete and evict refused (BUSY) while it lived; {self._tensors_equal()}"

    def _delete(self) -> str:
        self._operate("delete", DELETE_S)
        self._expect(Availability.DELETED, Residency.ABSENT)
        for tier in ("memory", *_COLD):
            self._expect_used(tier, empty=True)
        params = {"identity": str(IDENTITY), "source": str(self._source)}
        self._expect_refusal("import", params, "CONFLICT")
        return "DELETED, ABSENT; all four tiers empty; the name cannot be used again"

    def _log(self) -> str:
        from weightctl.controller.store.oplog import verify_log

        self._sandbox.stop()
        report = verify_log(self._sandbox.state_dir)
        if not report.ok:
            raise DemoError("the op-log is damaged", report.problem)
        return f"{report.last_sequence} entries in order, {self._sandbox.starts} starts"

    # --- how --------------------------------------------------------------------------------------

    def _operate(self, verb: str, expected_s: float) -> None:
        """Plan, start, kill at a random moment, start again, and wait until it is done."""
        params = {"identity": str(IDENTITY)}
        plan = self._sandbox.ask(verb, {**params, "dry_run": True})
        self._say("\n".join(f"  {line}" for line in table(plan).splitlines()))
        self._sandbox.ask(verb, params)
        if self._chance is not None:
            self._kill(self._chance.random() * expected_s)
            self._sandbox.start()
        self._sandbox.wait(self._idle, f"{verb} was not done", DONE_S)

    def _ask_in_vain(self, verb: str, params: dict[str, Any]) -> None:
        try:
            self._sandbox.ask(verb, params)
        except (UnknownOutcomeError, RemoteError):
            return

    def _kill(self, after_s: float) -> None:
        time.sleep(after_s)
        self._sandbox.kill()
        self._kills += 1
        self._say(f"  kill -9 after {duration_text(after_s)}: {self._where()}")

    def _where(self) -> str:
        try:
            record, operation = self._sandbox.records(IDENTITY)
        except KeyError:
            return "nothing was recorded yet"
        if operation is not None:
            done = f"{operation.processed_members} of {operation.total_members} members done"
            return f"{operation.operation.name}, {done}"
        return f"{record.availability.name}, {record.residency.name}"

    def _idle(self) -> bool:
        record, _ = self._sandbox.records(IDENTITY)
        return (
            record.operation is Operation.NONE and record.availability is not Availability.DELETING
        )

    # --- what is verified -------------------------------------------------------------------------

    def _expect(self, availability: Availability, residency: Residency) -> None:
        record, _ = self._sandbox.records(IDENTITY)
        if (record.availability, record.residency) != (availability, residency):
            raise DemoError(
                f"the record says {record.availability.name}, {record.residency.name}",
                f"expected: {availability.name}, {residency.name}",
            )

    def _expect_used(self, tier: str, *, empty: bool) -> None:
        used = self._used()[tier]
        if empty != (used == 0):
            expected = "nothing" if empty else f"{self._expected.size_bytes} or more"
            raise DemoError(f"tier {tier} holds {used} bytes", f"expected: {expected}")

    def _expect_refusal(self, verb: str, params: dict[str, Any], code: str) -> None:
        try:
            self._sandbox.ask(verb, params)
        except RemoteError as refusal:
            if refusal.code == code:
                self._say(f"  {verb} refused: {code}: {refusal.why}")
                return
            raise
        raise DemoError(f"{verb} was not refused", f"expected: {code}")

    def _tensors_equal(self) -> str:
        """Load every tensor and compare name, type, shape and bytes with the source."""
        folder = self._sandbox.folder / "loaded"
        params = {"identity": str(IDENTITY), "folder": str(folder), "holder": "demo"}
        self._sandbox.ask("load", params)
        loaded = fingerprint(folder)
        shutil.rmtree(folder)
        if loaded != self._expected:
            names = loaded.tensors.keys() | self._expected.tensors.keys()
            differ = [
                name
                for name in sorted(names)
                if loaded.tensors.get(name) != self._expected.tensors.get(name)
            ]
            raise DemoError("loaded tensors differ from the source", ", ".join(differ[:10]))
        return f"{len(loaded.tensors)} tensors, {size_text(loaded.size_bytes)} equal the source"

    def _residency(self) -> str:
        try:
            return self._sandbox.records(IDENTITY)[0].residency.name
        except KeyError:
            return Residency.UNKNOWN.name

    def _used(self) -> dict[str, int]:
        rows = self._sandbox.ask("tiers", {})["items"]
        return {row["name"]: row["usedBytes"] or 0 for row in rows}
