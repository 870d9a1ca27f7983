"""What a check found, the grade that follows, and both as text and JSON.  Layer: conformance.

Invariant: a grade is given only for cases that were run; what was not tried, hung or did not end
keeps the tier below it, with its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from weightctl.adapters.conformance.grades import Grade

UNTRIED = "not tried:"
"""How the reason of a skip begins that counts against the grade: nobody knows whether it holds."""
OPTIONAL = "not tried, and need not be:"
"""How the reason of a skip begins that is told as a hint and does not count."""
_DETAIL_LINES_MAX = 12


class Verdict(StrEnum):
    """How one case went."""

    HOLDS = "holds"
    BROKEN = "broken"
    HUNG = "hung"
    DIED = "died"
    """The process of the check ended in the middle of it."""
    UNTRIED = "untried"
    INAPPLICABLE = "inapplicable"
    """The tier does not declare what it is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One case."""

    case: str
    grade: Grade
    verdict: Verdict
    detail: str = ""
    """Why, with the place in the code; the stack of what hung."""

    @property
    def rule(self) -> str:
        """The case as a sentence."""
        name, _, parameters = self.case.rpartition("::")[2].partition("[")
        sentence = name.removeprefix("test_").replace("_", " ")
        return f"{sentence} [{parameters}" if parameters else sentence

    @property
    def counts_against(self) -> bool:
        """Whether it keeps the tier below its grade."""
        return self.verdict not in (Verdict.HOLDS, Verdict.INAPPLICABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All of one check."""

    factory: str
    profile: Mapping[str, object] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    hints: Sequence[str] = ()
    """What works without being declared, and what was measured."""
    selection: str = ""
    """The words by which cases were chosen; a selection has no grade."""
    problem: str = ""
    """Why no case could be run at all, in three lines: what, why, what to do; else empty."""

    @property
    def grade(self) -> Grade:
        """The highest grade of which, and of those below, every case holds; NONE of a selection."""
        reached = Grade.NONE
        if self.selection:
            return reached
        for grade in list(Grade)[1:]:
            cases = [finding for finding in self.findings if finding.grade == grade]
            if not cases or any(finding.counts_against for finding in cases):
                break
            reached = grade
        return reached

    def missing(self) -> list[Finding]:
        """What keeps the tier from the next grade; of a selection, all that does not hold."""
        against = [finding for finding in self.findings if finding.counts_against]
        if self.selection:
            return against
        return [finding for finding in against if finding.grade == self.grade + 1]

    def ended(self) -> list[Finding]:
        """Beyond what is missing: what hung or ended the process, whatever its grade."""
        bad = (Verdict.HUNG, Verdict.DIED)
        missing = self.missing()
        return [one for one in self.findings if one.verdict in bad and one not in missing]

    def satisfies(self, wanted: Grade) -> bool:
        """Whether that grade is reached; of a selection, whether each case up to it holds."""
        if self.problem or not self.selection:
            return not self.problem and self.grade >= wanted
        return all(finding.grade > wanted for finding in self.missing())

    def document(self) -> dict[str, object]:
        """The report for `--json`."""
        return {
            "apiVersion": "weightctl/v1",
            "kind": "AdapterCheck",
            "factory": self.factory,
            "profile": dict(self.profile),
            "grade": self.grade.name.lower(),
            "selection": self.selection,
            "missing": [finding.case for finding in self.missing()],
            "problem": self.problem,
            "hints": list(self.hints),
            "findings": [
                {
                    "case": finding.case,
                    "grade": finding.grade.name.lower(),
                    "verdict": str(finding.verdict),
                    "detail": finding.detail,
                }
                for finding in self.findings
            ],
        }

    def text(self) -> str:
        """The report for people."""
        lines = [f"tier {self.factory}"]
        if self.problem:
            return self.problem
        lines += [f"  {name}: {value}" for name, value in self.profile.items()]
        for grade in list(Grade)[1:]:
            lines.append(self._row(grade))
        lines += [f"  hint: {hint}" for hint in self.hints]
        if self.selection:
            lines.append(f"no grade: these are the cases of --select {self.selection!r} only")
            lines += _told("missing:", self.missing())
            return "\n".join(lines)
        lines.append(f"grade: {self.grade.name.lower()}")
        if self.grade < Grade.PLATINUM:
            lines += _told(f"missing for {Grade(self.grade + 1).name.lower()}:", self.missing())
        lines += _told("hung or ended the process, in higher grades:", self.ended())
        return "\n".join(lines)

    def _row(self, grade: Grade) -> str:
        cases = [finding for finding in self.findings if finding.grade == grade]
        count = {
            verdict: sum(finding.verdict == verdict for finding in cases) for verdict in Verdict
        }
        told = ", ".join(f"{number} {verdict}" for verdict, number in count.items() if number)
        return f"  {grade.name.lower():9} {told or 'no case was run'}"


def _told(title: str, findings: Sequence[Finding]) -> list[str]:
    """The title, and each finding with its reason; nothing where there are none."""
    lines = [title] if findings else []
    for finding in findings:
        lines.append(f"  {finding.verdict}: {finding.rule}")
        told = finding.detail.strip().splitlines()
        lines += [f"      {line}" for line in told[-_DETAIL_LINES_MAX:]]
    return lines
