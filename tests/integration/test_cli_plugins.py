"""Plugins that are broken in every way, as people see them: doctor, tiers, plan."""

from pathlib import Path

import pytest

from tests.support.cli import IDENTITY, Cli

_HEAD = """
import anyio
from dataclasses import replace
from weightctl.adapters.conformance.reference import ReferenceMedium, ReferenceTier
class Tier(ReferenceTier):
    def __init__(self, name, options, context):
        super().__init__(name, ReferenceMedium())
"""


def _calls(line: str) -> str:
    """Two methods that do that."""
    heads = ("capacity(self)", "observe(self, members, *, detail=())")
    return "".join(f"    async def {head}: {line}\n" for head in heads)


BROKEN = {
    "imports": ("raise SystemExit(3)", "SystemExit: 3"),
    "absent": ("", "has no attribute 'factory'"),
    "nothing": ("def factory(*_): return None", "has no attribute 'profile'"),
    "exits": ("def factory(*_): raise SystemExit(4)", "SystemExit: 4"),
    "shape": (
        f"{_HEAD}class factory(Tier):\n    observe = None\n",
        "it has no observe",
    ),
    "named": (
        f"{_HEAD}def factory(name, *rest): return Tier('another', *rest)\n",
        "it calls itself another, not named",
    ),
    "declares": (
        (
            f"{_HEAD}def factory(*given):\n"
            "    tier = Tier(*given)\n"
            "    tier.profile = replace(tier.profile, bandwidth_bytes_per_s='fast')\n"
            "    return tier\n"
        ),
        "TierProfile.bandwidth_bytes_per_s is a str, no whole number",
    ),
    "forgets": (
        (
            f"{_HEAD}def factory(*given):\n"
            "    tier = Tier(*given)\n"
            "    less = replace(tier.profile.capabilities, persistent=False)\n"
            "    tier.profile = replace(tier.profile, hot=False, capabilities=less)\n"
            "    return tier\n"
        ),
        "it is cold and not persistent",
    ),
    "enters": (
        f"{_HEAD}class factory(Tier):\n    async def __aenter__(self): raise SystemExit(5)\n",
        "SystemExit: 5",
    ),
    "answers": (
        f"{_HEAD}class factory(Tier):\n" + _calls("return 'all there'"),
        "it answered a str, not a TierCapacity",
    ),
    "hangs": (
        f"{_HEAD}class factory(Tier):\n" + _calls("await anyio.sleep_forever()"),
        "no answer within",
    ),
}


@pytest.fixture
def plugins(tmp_path: Path) -> dict[str, str]:
    """All of them installed; the environment in which they are."""
    package = tmp_path / "plugins"
    info = package / "broken_tiers-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-tiers\nVersion: 1\n")
    lines = [f"{kind} = broken_{kind}:factory" for kind in BROKEN]
    (info / "entry_points.txt").write_text("\n".join(["[weightctl.tiers]", *lines, ""]))
    for kind, (source, _) in BROKEN.items():
        (package / f"broken_{kind}.py").write_text(source)
    return {"PYTHONPATH": str(package)}


def test_each_broken_plugin_is_named_and_the_others_work(
    tmp_path: Path, plugins: dict[str, str]
) -> None:
    cli = Cli(tmp_path)
    cli.run("import", IDENTITY, str(cli.model), env=plugins)
    extra = "".join(f'\n[[tier]]\nname = "{kind}"\nkind = "{kind}"\n' for kind in BROKEN)
    cli.config.write_text(cli.config.read_text() + extra)
    found = cli.run("tiers", "-o", "json", env=plugins).document["items"]
    problems = {row["name"]: row["problem"] for row in found}
    for kind, (_, told) in BROKEN.items():
        assert told in problems[kind]
    assert not problems["memory"]
    assert not problems["local_disk"]
    doctor = cli.run("doctor", code=1, env=plugins).out
    plan = cli.run("plan", IDENTITY, "-o", "json", env=plugins).out
    for kind in BROKEN:
        assert f"tier {kind}" in doctor
        assert f'"{kind}"' in plan
    cli.run("load", IDENTITY, str(tmp_path / "out"), env=plugins)


def test_a_kind_that_two_packages_bring_is_refused_and_both_are_named(tmp_path: Path) -> None:
    info = tmp_path / "plugins" / "shadow_tiers-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shadow-tiers\nVersion: 1\n")
    kinds = ("memory = shadow_tiers:factory", "spare = weightctl.adapters.dfs:factory")
    (info / "entry_points.txt").write_text("\n".join(["[weightctl.tiers]", *kinds, ""]))
    env = {"PYTHONPATH": str(info.parent)}
    cli = Cli(tmp_path)
    told = cli.run("tiers", code=2, env=env).err.splitlines()
    assert told[0].endswith("tier memory")
    doctor = cli.run("doctor", "-o", "json", code=1, env=env).document["checks"]
    (check,) = [check for check in doctor if check["name"] == "plugin memory"]
    for why in (told[1], check["detail"]):
        assert "weightctl (weightctl.adapters.memory:factory)" in why
        assert "shadow-tiers (shadow_tiers:factory)" in why
    assert "uninstall" in told[2]
    assert "uninstall" in check["todo"]
    assert [check["ok"] for check in doctor if check["name"] == "plugin spare"] == [True]
