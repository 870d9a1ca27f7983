"""The demo's steps, and what is verified in each.  Layer: cli."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, cast

from weightctl.controller.api.client import RemoteError
from weightctl.controller.cli.demo.killing import Killer
from weightctl.controller.cli.demo.model import fingerprint
from weightctl.controller.cli.demo.sandbox import DemoError
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
    from weightctl.controller.cli.demo.course import Points
    from weightctl.controller.cli.demo.model import Fingerprint
    from weightctl.controller.cli.demo.sandbox import Sandbox

IDENTITY = Identity(
    namespace="demo", resource_id="all-MiniLM-L6-v2", revision="main", weight_generation=1
)
DONE_S = 300.0
_COLD = ("local_disk", "dfs", "nof")


class Story:
    """One telling, from import to tombstone; without `points` nothing is killed."""

    def __init__(
        self,
        sandbox: Sandbox,
        source: Path,
        expected: Fingerprint,
        *,
        points: Points | None,
        say: Callable[[str], None],
    ) -> None:
        self._sandbox = sandbox
        self._source = source
        self._expected = expected
        self._points = points
        self._say = say
        self._clock = SystemClock()
        self._killer = Killer(sandbox, IDENTITY, say)
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
        self._killer.kills = []
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
                "kills": len(self._killer.kills),
                "killed": self._killer.kills,
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
        if self._points is not None:
            size_bytes = self._expected.size_bytes
            self._killer.importing(params, size_bytes, self._points.next("import"))
            self._sandbox.start()
        report = self._sandbox.ask("import", params)
        if self._points is not None:
            resumed = self._expected.size_bytes * 2 - report["movedBytes"]
            self._say(f"  resumed: {size_text(max(resumed, 0))} were there already")
        self._expect(Availability.READY, Residency.HOT)
        return f"READY, HOT; {self._tensors_equal()}"

    def _evict(self) -> str:
        self._operate("evict", undo="rehydrate")
        self._expect(Availability.READY, Residency.COLD)
        self._expect_used("memory", empty=True)
        return f"COLD, memory empty; {self._tensors_equal()}"

    def _rehydrate(self) -> str:
        self._operate("rehydrate", undo="evict")
        self._expect(Availability.READY, Residency.HOT)
        self._expect_used("memory", empty=False)
        return f"HOT; {self._tensors_equal()}"

    def _repair(self) -> str:
        self._operate("repair")
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
        self._operate("delete")
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

    def _operate(self, verb: str, *, undo: str = "") -> None:
        """Plan, start, kill at a random moment, start again, and wait until it is done.

        When the kill came too late and there is a way back, all is done once more.
        """
        point = None if self._points is None else self._points.next(verb)
        hit = self._operate_once(verb, point)
        if not hit and undo:
            self._say(f"  {undo}, and once more")
            self._sandbox.ask(undo, {"identity": str(IDENTITY)})
            self._sandbox.wait(self._idle, f"{undo} was not done", DONE_S)
            self._operate_once(verb, point)

    def _operate_once(self, verb: str, point: float | None) -> bool:
        params = {"identity": str(IDENTITY)}
        plan = self._sandbox.ask(verb, {**params, "dry_run": True})
        self._say("\n".join(f"  {line}" for line in table(plan).splitlines()))
        hit = True
        if point is None:
            self._sandbox.ask(verb, params)
        else:
            hit = self._killer.operating(verb, cast("doc.Plan", plan), point)
            self._sandbox.start()
        self._sandbox.wait(self._idle, f"{verb} was not done", DONE_S)
        return hit

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
