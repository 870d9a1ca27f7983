"""The kit's histories: they hold with every honest profile, and find one that cannot be kept."""

from dataclasses import replace
from pathlib import Path

import pytest

from weightctl.adapters.conformance.check import Request, check
from weightctl.adapters.conformance.grades import Grade
from weightctl.adapters.conformance.report import Verdict
from weightctl.adapters.conformance.simulation.profiles import play
from weightctl.adapters.conformance.suite.histories import SEEDS
from weightctl.controller.core.tiers import Capabilities, TierProfile

COLD = TierProfile(
    name="tier",
    kind="kind",
    hot=False,
    capabilities=Capabilities(persistent=True, atomic_publish=True, checksum=True),
)
HOT = TierProfile(name="tier", kind="kind", hot=True)


def lacking(profile: TierProfile, *capabilities: str) -> TierProfile:
    """One that does not declare these."""
    lacks = dict.fromkeys(capabilities, False)
    return replace(profile, capabilities=replace(profile.capabilities, **lacks))


@pytest.mark.parametrize(
    "profile, lacks",
    [
        (COLD, ("list_is_consistent",)),
        (COLD, ("list_is_consistent", "delete_is_immediate", "checksum")),
        (HOT, ("list_is_consistent", "delete_is_immediate")),
    ],
    ids=["disk whose lists are behind", "disk that is behind", "memory that is behind"],
)
def test_what_a_tier_does_not_declare_breaks_no_rule(
    profile: TierProfile, lacks: tuple[str, ...]
) -> None:
    played = play(lacking(profile, *lacks), SEEDS)
    assert not played.broken
    assert played.histories == len(SEEDS) + 1
    assert played.incidents > 100


@pytest.mark.parametrize("profile", [COLD, HOT], ids=["disk", "memory"])
def test_a_tier_that_declares_its_lists_consistent_and_is_behind_is_found(
    profile: TierProfile,
) -> None:
    truth = lacking(profile, "list_is_consistent").capabilities
    told = play(profile, SEEDS, behaves=truth).broken
    assert told.startswith("seed 0: absence: ")
    assert "Script(seed=0" in told


def test_a_tier_that_declares_to_outlive_its_process_and_does_not_is_found() -> None:
    told = play(COLD, SEEDS, behaves=lacking(COLD, "persistent").capabilities).broken
    assert ": evidence: " in told
    assert "forgets when its process ends" in told


_VOLATILE = """
from weightctl.adapters.conformance.reference import ReferenceMedium, ReferenceTier
from weightctl.controller.core.tiers import Capabilities, TierProfile
class factory(ReferenceTier):
    def __init__(self, name, options, context):
        super().__init__(name, ReferenceMedium())
        self.profile = TierProfile(name=name, kind="volatile", hot=False)
"""


def test_a_profile_that_cannot_be_kept_is_told_with_its_seed_and_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "volatile_tier.py").write_text(_VOLATILE)
    monkeypatch.syspath_prepend(tmp_path)
    report = check(
        Request(factory="volatile_tier:factory", select="history", case_deadline_s=300.0)
    )
    (finding,) = report.findings
    assert (finding.verdict, finding.grade) == (Verdict.BROKEN, Grade.SILVER)
    text = report.text()
    assert "seed " in text
    assert ": evidence: " in text
    assert "Script(seed=" in text
