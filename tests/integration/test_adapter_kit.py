"""`weightctl adapter`: grades of built-in tiers, tiers that hang or die, a project that works."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from weightctl.adapters.conformance.check import Request, check
from weightctl.adapters.conformance.grades import Grade
from weightctl.adapters.conformance.new import make
from weightctl.adapters.conformance.reference import ReferenceMedium, ReferenceTier
from weightctl.adapters.conformance.report import Finding, Report, Verdict
from weightctl.adapters.conformance.suite.harness import TierHarness
from weightctl.adapters.conformance.suite.life import live
from weightctl.controller.core.observation import Member
from weightctl.controller.errors import ConfigError, TargetExistsError
from weightctl.controller.ports import Limiter, Outcome, Tier

ROOT = Path(__file__).parents[2]
WEIGHTCTL = (sys.executable, "-m", "weightctl.controller.cli.main")
MEMORY = "weightctl.adapters.memory:factory"
PATIENCE_S = 600.0
CASE_S = 300.0
HUNG_S = 10.0
"""For a case that hangs, and for the others beside it on a slow machine."""

_HEAD = """
import anyio, os, signal, time
from weightctl.adapters.conformance.reference import ReferenceMedium, ReferenceTier
MEDIUM = ReferenceMedium()
class Tier(ReferenceTier):
    def __init__(self, name, options, context):
        super().__init__(name, ReferenceMedium())
"""
_DEEP = """
async def deeper(calls):
    await (deeper(calls - 1) if calls else anyio.sleep_forever())
"""


def weightctl(*words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*WEIGHTCTL, *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (path, *sys.path)))},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize("kind", ["memory", "local_disk"])
def test_a_built_in_tier_is_at_least_gold(kind: str) -> None:
    options = {"path": "{tmp}/medium"}
    report = check(
        Request(
            factory=f"weightctl.adapters.{kind}:factory", options=options, case_deadline_s=CASE_S
        )
    )
    below = [one for one in report.findings if one.grade <= Grade.GOLD and one.counts_against]
    assert report.grade >= Grade.GOLD, below
    assert report.profile["kind"] == kind
    assert any("MiB/s" in hint for hint in report.hints)  # beside its floor


HURT = {
    "time.sleep(3600)": (Verdict.HUNG, "in capacity"),
    "while True: pass": (Verdict.HUNG, "in capacity"),
    "await anyio.sleep_forever()": (Verdict.HUNG, "in capacity"),
    "await deeper(60)": (Verdict.HUNG, "in capacity"),
    "os._exit(9)": (Verdict.DIED, ""),
    "os.kill(os.getpid(), signal.SIGSEGV)": (Verdict.DIED, ""),
}
"""What a tier does in `capacity`, and what is told of that."""


@pytest.fixture(scope="module")
def hurt(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    """The reports of these tiers, all checked at once: each waits for its deadline."""
    far = tmp_path_factory.mktemp("kit") / ("a long way to the code of a tier " * 6)
    far.mkdir()
    for number, line in enumerate(HURT):
        source = f"{_HEAD}{_DEEP}class factory(Tier):\n    async def capacity(self):\n"
        (far / f"bad_tier_{number}.py").write_text(f"{source}        {line}\n")
    select = "capacity_follows or an_empty_batch"

    def checked(number: int) -> Report:
        factory = f"bad_tier_{number}:factory"
        return check(Request(factory=factory, select=select, case_deadline_s=HUNG_S))

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor() as threads:
        patch.syspath_prepend(far)
        return dict(zip(HURT, threads.map(checked, range(len(HURT))), strict=True))


@pytest.mark.parametrize("line", HURT)
def test_a_tier_that_hangs_or_ends_the_process_is_reported_and_the_rest_is_checked(
    line: str, hurt: dict[str, Report]
) -> None:
    report, (verdict, told) = hurt[line], HURT[line]
    found = {finding.rule: finding for finding in report.findings}
    case = found["capacity follows what is stored and dropped"]
    assert case.verdict is verdict
    assert told in case.detail
    assert found["an empty batch has no outcomes"].verdict is Verdict.HOLDS
    assert report.grade is Grade.NONE


def test_what_holds_up_the_loop_is_named_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = f"{_HEAD}class factory(Tier):\n    async def inventory(self, group_id=None):\n"
    source += "        try: time.sleep(0.001)\n        except Exception: pass\n"
    source += "        return await super().inventory(group_id)\n"
    (tmp_path / "blocking_tier.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    report = check(
        Request(factory="blocking_tier:factory", select="holds_up", case_deadline_s=CASE_S)
    )
    (finding,) = report.findings
    assert finding.verdict is Verdict.BROKEN
    assert "time.sleep blocks" in finding.detail
    assert "blocking_tier.py" in finding.detail


_KEEPS = """
    held = False
    async def inventory(self, group_id=None):
        if self.held: raise RuntimeError("kept by who was cancelled")
        self.held = True
        await anyio.sleep(0)
        self.held = False
        return await super().inventory(group_id)
"""
_HALF = """
    async def observe(self, members, *, detail=()):
        seen = await super().observe(members, detail=detail)
        return type(seen)(
            states=seen.states.replace(bytes([2]), bytes([3])), epoch=seen.epoch,
            details=seen.details, problem=seen.problem
        )
"""
_LATE = """
    async def drop(self, batch, fence):
        items = [type(i)(member=i.member, instance_id=i.instance_id) for i in batch]
        self.later = getattr(self, "later", []) + items
        return [Done(instance_id=i.instance_id) for i in items]
"""
_SHIFTED = """
    @asynccontextmanager
    async def open(self, member):
        async with super().open(member) as reader:
            yield Shifted(reader._content, reader.instance_id, reader.size_bytes)
"""
_MORE = """
from contextlib import asynccontextmanager
from weightctl.controller.ports import Done
class Shifted:
    def __init__(self, content, instance_id, size_bytes):
        self.content, self.instance_id, self.size_bytes = content, instance_id, size_bytes
    async def read_into(self, offset, buffer):
        buffer[:] = self.content[:len(buffer)]
    def fileno(self):
        return None
"""


@pytest.mark.parametrize(
    "body, select, told",
    [
        (_KEEPS, "look_cancelled and inventory", "kept by who was cancelled"),
        (_HALF, "half_replica", "MemberState.COMPLETE"),
        (_LATE, "deletion_that_is_immediate", "assert [<MemberState.COMPLETE: 3>] =="),
        (_LATE, "consistent_list", "one more item: 'key-4'"),
        (_SHIFTED, "range_is_the_slice", "assert bytearray(b"),
    ],
)
def test_a_tier_that_breaks_a_rule_is_found_and_told_with_what_it_answered(
    body: str, select: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wrong_tier.py").write_text(f"{_HEAD}{_MORE}class factory(Tier):{body}")
    monkeypatch.syspath_prepend(tmp_path)
    report = check(Request(factory="wrong_tier:factory", select=select, case_deadline_s=CASE_S))
    (finding,) = report.findings
    assert finding.verdict is Verdict.BROKEN, finding.detail
    assert told in finding.detail


_MANY = """
import asyncio, os
from contextlib import asynccontextmanager
from weightctl.adapters.local_disk import factory as made
from weightctl.controller.ports import Done, Unknown
LEAKED = []
class factory:
    def __init__(self, name, options, context, /):
        self._inner, self._path = made(name, options, context), options["path"]
    def __getattr__(self, name):
        return getattr(self._inner, name)
    async def __aenter__(self):
        fences = self._path + "/weightctl-fence.json"
        if os.path.exists(fences): os.unlink(fences)
        await self._inner.__aenter__()
        return self
    async def __aexit__(self, *exc_info):
        await self._inner.__aexit__(*exc_info)
    async def observe(self, members, *, detail=()):
        for folder, _, names in os.walk(self._path + "/groups"):
            for name in names: os.utime(os.path.join(folder, name))
        seen = await self._inner.observe(members, detail=detail)
        seen = replace(seen, epoch="forever")
        whole = {i: replace(d, size_bytes=members.sizes_bytes[i]) for i, d in seen.details.items()}
        return replace(seen, details=whole)
    async def store(self, batch, fence, *, limit=None):
        try:
            return await self._inner.store(batch, fence, limit=limit)
        except asyncio.CancelledError:
            return [Unknown() for _ in batch]
    async def drop(self, batch, fence):
        first = [item for item in batch if item.member.group_id == batch[0].member.group_id]
        out = list(await self._inner.drop(first, fence))
        return out + [Done(instance_id=item.instance_id) for item in batch[len(first):]]
    async def inventory(self, group_id=None):
        found = await self._inner.inventory(group_id)
        return {group: items[:1000] for group, items in found.items()}
    @asynccontextmanager
    async def open(self, member):
        try:
            async with self._inner.open(member) as reader: yield reader
        except BaseException:
            LEAKED.append(os.open("/dev/null", os.O_RDONLY))
            raise
"""
MANY_FAULTS = {
    "asking changes nothing": "Differing items",
    "terms are remembered over a restart": "['Done'] == ['Fenced']",
    "the medium of another store is unknown and nothing changes": "belongs to another store",
    "calls that fail leave nothing": "descriptors",
    "an inventory lists each of a thousand replicas": "1000 == 1001",
    "a medium begun anew is empty and has another epoch": "'forever' not in ('', 'forever')",
    "a replica that was cut is not shown as whole": "100000 < 100000",
    "a cancelled call ends as cancelled [store]": "it answered all the same",
    "a batch over two groups removes from both [drop]": "[<MemberState.COMPLETE: 3>]",
}


def test_each_fault_of_a_tier_is_found_by_the_case_of_its_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "many_faults.py").write_text(f"from dataclasses import replace\n{_MANY}")
    monkeypatch.syspath_prepend(tmp_path)
    names = (rule.partition(" [")[0].replace(" ", "_") for rule in MANY_FAULTS)
    report = check(
        Request(
            factory="many_faults:factory",
            options={"path": "{tmp}/medium"},
            select=" or ".join(names),
            case_deadline_s=CASE_S,
        )
    )
    found = {finding.rule: finding for finding in report.findings}
    told_first = [rule for rule in found if rule in list(MANY_FAULTS)[:3]]
    assert told_first == list(MANY_FAULTS)[:3]  # what others follow from, before them
    for rule, told in MANY_FAULTS.items():
        assert found[rule].verdict is Verdict.BROKEN, rule
        assert told in found[rule].detail


class Backwards(ReferenceTier):
    """Its read-backs are answered in the wrong order."""

    async def verify(
        self, batch: Sequence[Member], *, limit: Limiter | None = None
    ) -> Sequence[Outcome]:
        return list(reversed(await super().verify(batch, limit=limit)))


class BackwardsHarness(TierHarness):
    def tier(self, *, capacity_bytes: int | None = None, read_only: bool = False) -> Tier:
        return Backwards("tier", ReferenceMedium())


async def test_a_life_that_never_comes_to_rest_ends_and_is_told(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"come to rest: the revision is .*READY"):
        await live(BackwardsHarness(tmp_path), seed=1, life_s=1.0)


_HANGS = """
from weightctl.adapters.conformance.suite.harness import TierHarness
class Harness(TierHarness):
    def hang(self):
        MEDIUM.hung = True
    def resume(self):
        MEDIUM.hung = False
class Hung(ReferenceMedium):
    hung = False
MEDIUM = Hung()
class factory(ReferenceTier):
    def __init__(self, name, options, context):
        super().__init__(name, MEDIUM)
    async def observe(self, members, *, detail=()):
        seen = await super().observe(members, detail=detail)
        if not MEDIUM.hung:
            return seen
        return type(seen)(states=bytes([1]) * len(members), epoch=seen.epoch)
    async def capacity(self):
        if MEDIUM.hung:
            with anyio.CancelScope(shield=True):
                while MEDIUM.hung: await anyio.sleep(0.01)
        return await super().capacity()
"""


def test_a_tier_that_guesses_or_holds_on_while_its_medium_hangs_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "guessing_tier.py").write_text(_HEAD + _HANGS)
    monkeypatch.syspath_prepend(tmp_path)
    request = Request(
        factory="guessing_tier:factory",
        harness="guessing_tier:Harness",
        select="medium_hangs",
        case_deadline_s=CASE_S,
    )
    assert {finding.verdict for finding in check(request).findings} == {Verdict.BROKEN}


@pytest.mark.parametrize(
    "words, told",
    [
        (
            ("no_such_module:factory", "--select", "an_empty_batch"),
            "No module named 'no_such_module'",
        ),
        (("json:dumps", "--select", "an_empty_batch"), "TypeError"),
        (("json:dumps", "--option", "path"), "no `=`"),
        ((MEMORY, "--select", "gibberish"), "why: no case has these words: 'gibberish'\n"),
        ((MEMORY, "--select", "a b)"), "why: these are no words of cases: 'a b)'\n"),
    ],
)
def test_what_cannot_be_checked_is_said(words: tuple[str, ...], told: str) -> None:
    done = weightctl("adapter", "check", *words)
    assert done.returncode in (1, 2)
    assert told in done.stdout + done.stderr


def finding(grade: Grade, verdict: Verdict) -> Finding:
    return Finding(case="x::TestTier::test_a_rule", grade=grade, verdict=verdict)


@pytest.mark.parametrize(
    "verdicts, grade",
    [
        ("", Grade.NONE),
        ("holds holds holds holds", Grade.PLATINUM),
        ("holds holds holds untried", Grade.GOLD),
        ("holds inapplicable holds hung", Grade.GOLD),
        ("holds broken holds holds", Grade.BRONZE),
        ("died holds holds holds", Grade.NONE),
    ],
)
def test_a_grade_needs_every_case_of_it_and_of_the_lower_ones(verdicts: str, grade: Grade) -> None:
    pairs = zip(list(Grade)[1:], verdicts.split(), strict=False)
    report = Report(factory="f", findings=[finding(one, Verdict(word)) for one, word in pairs])
    assert report.grade is grade
    assert f"grade: {grade.name.lower()}" in report.text() or not verdicts


# --- new ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make("cold-store", tmp_path_factory.mktemp("new"))
    return made[0].parent


def test_a_new_project_is_gold_at_once(project: Path) -> None:
    words = ["weightctl_cold_store:factory", "--option", "path={tmp}/medium", "--json"]
    words += ["--grade", "gold", "--select", "not thousand"]  # the long ones: the built-in tiers
    done = weightctl(
        "adapter", "check", *words, "--case-deadline", "300s", path=str(project / "src")
    )
    document: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == 0, document["missing"]
    assert len(document["findings"]) > 100


def test_a_new_project_is_installed_typed_and_passes_its_own_tests(
    project: Path, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    flags = ["--no-cache-dir", "--no-index"]  # nothing of it is left in the home
    subprocess.run([*command, *flags, "-t", str(site), str(project)], check=True)
    path = os.pathsep.join([str(site), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "MYPYPATH": str(ROOT / ".devroot")}
    for argv in (
        ["pytest", "-q", "-k", "stored_bytes or hostile or drop", "-p", "no:cacheprovider"],
        ["mypy", "--strict", "--cache-dir", str(tmp_path / "mypy"), "src", "tests"],
        ["ruff", "check", "--isolated", "--line-length", "100", "."],
        ["ruff", "format", "--isolated", "--line-length", "100", "--check", "."],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *argv],
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    asked = "from importlib.metadata import entry_points as e; print(*e(group='weightctl.tiers'))"
    told = subprocess.run(
        [sys.executable, "-c", asked], env=environment, capture_output=True, text=True, check=True
    )
    assert "name='cold-store', value='weightctl_cold_store:factory'" in told.stdout


@pytest.mark.parametrize(
    "name", ["", "Cold", "1st", "a--b", "a-", "a/b", "../x", "a b", "x" * 41, "json", "é"]
)
def test_a_name_that_cannot_be_one_is_refused_and_nothing_is_written(
    name: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError):
        make(name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "weightctl-cold").symlink_to("nowhere")
    with pytest.raises(TargetExistsError):
        make("cold", tmp_path)
    done = weightctl("adapter", "new", "cold", "--into", str(tmp_path))
    assert done.returncode == 11
    assert "nothing is written over" in done.stderr
