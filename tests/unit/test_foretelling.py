"""What a tier tells people beside the port: how it would drop, and how its medium is set up."""

from collections.abc import Sequence
from pathlib import Path

from tests.support.plain_tier import PlainTier
from tests.support.rig import IDENTITY, rig
from tests.support.virtual_time import VirtualClock
from weightctl.controller.api import examining, requests
from weightctl.controller.api.app import StoreRecords
from weightctl.controller.api.planning import Planning
from weightctl.controller.api.reads import _last_tries
from weightctl.controller.api.supposing import Wish
from weightctl.controller.core.policy import Policy
from weightctl.controller.ports import Check
from weightctl.controller.runtime.answers import TEXT_CHARS_MAX
from weightctl.controller.runtime.border import BorderedTier
from weightctl.controller.runtime.forwarding import ForwardingTier
from weightctl.controller.store.evidence import EvidenceRow


class Telling(PlainTier):
    """It has two ways to drop."""

    def dropping(self, keys: Sequence[str]) -> str:
        """As ports.Foretelling."""
        return f"{len(keys)} objects go by foot"


async def test_a_plan_tells_how_what_it_drops_is_dropped_and_no_other_plan_does(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as parts:
        hot = Telling("memory", hot=True)
        hot.content = parts.hot.content
        report = await parts.weights.put(IDENTITY, parts.source)
        told = f"{report.payload_count + 1} objects go by foot"
        planning = Planning(
            records=StoreRecords(parts.store),
            tiers=[ForwardingTier(hot), parts.cold],
            policy=Policy(),
            clock=parts.clock,
        )
        subject = await planning.records.subject(IDENTITY)
        evict = await planning.dry_run(subject, Wish(verb="evict"))
        assert any(step["step"] == "drop" for step in evict["steps"])
        assert evict["remarks"] == [told]
        delete = await planning.dry_run(subject, Wish(verb="delete"))
        assert any(step["step"] == "drop" for step in delete["steps"])
        assert delete["remarks"] == []


def row(member: str, *, instance: str = "a.1", operation: int = 7, at_ms: int = 0) -> EvidenceRow:
    return EvidenceRow(
        member_key=member,
        dropped_tier="memory",
        dropped_instance=instance,
        evidence_tier="disk",
        evidence_instance="f",
        evidence_sha256=bytes(32),
        evidence_epoch="e",
        verified_at_ms=1,
        operation_id=operation,
        at_ms=at_ms,
    )


def test_a_drop_that_was_tried_twice_is_shown_once_as_it_was_tried_last() -> None:
    tried = [row("k", at_ms=1), row("l", at_ms=1), row("k", at_ms=2)]
    others = [row("k", instance="b.1", at_ms=3), row("k", operation=8, at_ms=4)]
    assert list(_last_tries([*tried, *others])) == [tried[2], tried[1], *others]


class Rude(PlainTier):
    """It answers what is no list of checks, or texts of any length."""

    answer: object = None

    async def checks(self, *, evidence_max_age_s: float) -> object:
        """As ports.Checking, but not as it says."""
        del evidence_max_age_s
        return self.answer


async def test_what_a_plugin_tells_doctor_is_taken_only_where_it_is_what_the_port_says() -> None:
    inner = Rude("memory", hot=True)
    tier = BorderedTier(inner, inner.profile, VirtualClock())
    asked = requests.Tiers(examine=True)
    async with tier:
        for answer in (None, "ok", [Check(name="n", ok=True, detail="d"), 5]):
            inner.answer = answer
            (check,) = (await examining.tiers(asked, [tier], Policy()))["checks"]
            assert (check["name"], check["ok"]) == ("medium of memory", False)
        inner.answer = [Check(name="n", ok=True, detail="d" * 9000)] * 2
        (check,) = (await examining.tiers(asked, [tier], Policy()))["checks"]
        assert (check["name"], check["ok"], len(check["detail"])) == ("n", True, TEXT_CHARS_MAX + 1)
        assert "checks" not in await examining.tiers(requests.Tiers(), [tier], Policy())
