"""The configuration: precedence, origins, every refusal with the nearest known name."""

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from weightctl.controller.config.loading import Config, load
from weightctl.controller.config.settings import BY_KEY, SETTINGS, TIER_LIMITS
from weightctl.controller.config.values import shown
from weightctl.controller.core.policy import Policy, Window
from weightctl.controller.errors import ConfigError
from weightctl.controller.runtime.admission import TierLimits
from weightctl.controller.runtime.settings import RuntimeSettings
from weightctl.controller.weightstore.layout import PAYLOAD_BYTES_MIN
from weightctl.controller.weightstore.options import WeightStoreOptions
from weightctl.controller.wiring import runtime_settings


def configured(tmp_path: Path, text: str = "", **layers: Any) -> Config:
    """Load with `text` as the file; `environ`, `assignments`, `state_dir` are the other layers."""
    file = tmp_path / "weightctl.toml"
    file.write_text(text, encoding="utf-8")
    environ = {"HOME": str(tmp_path), **dict(layers.pop("environ", {}))}
    return load(environ=environ, file=str(file), **layers)


def test_nothing_set_gives_the_defaults_of_the_policy(tmp_path: Path) -> None:
    config = load(environ={"HOME": str(tmp_path)})
    assert config.policy() == Policy()
    assert config.state_dir == str(tmp_path / ".local/state/weightctl")
    assert set(config.origins.values()) == {"default"}
    assert [tier.name for tier in config.tiers] == ["memory", "local_disk"]


def test_the_environment_overrides_the_file_and_flags_override_both(tmp_path: Path) -> None:
    text = "[policy]\ncold_copies = 2\nsettle_s = 3\npaused = true\n"
    environ = {"WEIGHTCTL_POLICY_COLD_COPIES": "3", "WEIGHTCTL_POLICY_SETTLE_S": "4"}
    config = configured(tmp_path, text, environ=environ, assignments=["policy.cold_copies=4"])
    assert config.policy() == Policy(cold_copies=4, settle_s=4.0, paused=True)
    assert config.origins["policy.cold_copies"] == "flag --set policy.cold_copies"
    assert config.origins["policy.settle_s"] == "environment WEIGHTCTL_POLICY_SETTLE_S"
    assert config.origins["policy.paused"] == f"file {tmp_path}/weightctl.toml"
    assert config.origins["policy.windows"] == "default"


def test_the_state_directory_has_a_flag_of_its_own_that_wins(tmp_path: Path) -> None:
    environ = {"WEIGHTCTL_STATE_DIR": "/from/environment"}
    assert configured(tmp_path, environ=environ).state_dir == "/from/environment"
    config = configured(tmp_path, environ=environ, state_dir="/from/flag")
    assert (config.state_dir, config.origins["state_dir"]) == ("/from/flag", "flag --state-dir")


def test_a_relative_path_in_the_file_starts_at_the_file(tmp_path: Path) -> None:
    assert configured(tmp_path, 'state_dir = "state"').state_dir == str(tmp_path / "state")


def test_two_spellings_of_a_state_directory_have_one_memory_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    paths = {
        load(environ={"HOME": "/"}, state_dir=f"{tmp_path}{spelling}").tiers[0].options["path"]
        for spelling in ("/a", "/b/../a", "/link/a")
    }
    assert len(paths) == 1
    other = load(environ={"HOME": "/"}, state_dir=f"{tmp_path}/other").tiers[0]
    assert other.options["path"] not in paths


def test_tiers_come_from_the_file_with_their_options_untouched(tmp_path: Path) -> None:
    text = '[[tier]]\nname = "ram"\nkind = "memory"\npath = "/dev/shm/x"\nodd = 1\n'
    config = configured(tmp_path, text)
    (tier,) = config.tiers
    assert (tier.name, tier.kind) == ("ram", "memory")
    assert tier.options == {"path": "/dev/shm/x", "odd": 1}
    assert config.tiers_origin == f"file {tmp_path}/weightctl.toml"


def test_tiers_of_one_family_share_a_section_and_may_differ_from_it(tmp_path: Path) -> None:
    text = (
        "[mooncake]\nmaster = 'a:1'\ndeadline_s = 3\n"
        "[[tier]]\nname = 'ram'\nkind = 'mooncake-memory'\n"
        "[[tier]]\nname = 'ssd'\nkind = 'mooncake-local-disk'\ndeadline_s = 9\n"
        "[[tier]]\nname = 'disk'\nkind = 'local_disk'\npath = 'x'\n"
    )
    ram, ssd, disk = configured(tmp_path, text).tiers
    assert ram.options == {"master": "a:1", "deadline_s": 3}
    assert ssd.options == {"master": "a:1", "deadline_s": 9}
    assert disk.options == {"path": "x"}


def test_a_section_that_no_tier_shares_is_refused(tmp_path: Path) -> None:
    text = "[mooncake]\nmaster = 'a:1'\n[[tier]]\nname = 'a'\nkind = 'memory'\n"
    with pytest.raises(ConfigError, match=r"no \[\[tier\]\] is of a kind mooncake-"):
        configured(tmp_path, text)


def test_every_setting_can_be_set_in_all_three_places(tmp_path: Path) -> None:
    for setting in SETTINGS:
        value = shown(setting.default)
        word = ",".join(map(str, value)) if isinstance(value, list) else str(value) or "x"
        for layer in (
            {"environ": {setting.variable: word}},
            {"assignments": [f"{setting.key}={word}"]},
        ):
            assert configured(tmp_path, **layer).origins[setting.key] != "default"


def test_the_defaults_are_those_of_the_parts_that_are_configured(tmp_path: Path) -> None:
    config = load(environ={"HOME": str(tmp_path)})
    settings = runtime_settings(config)
    limits = dict.fromkeys(("memory", "local_disk"), TierLimits())
    assert settings == RuntimeSettings(tiers=limits)
    assert WeightStoreOptions(**config.section("import")) == WeightStoreOptions()
    assert {setting.key: setting.default for setting in TIER_LIMITS} == asdict(TierLimits())


def test_a_tier_may_have_limits(tmp_path: Path) -> None:
    head = "[[tier]]\nname = 'a'\nkind = 'memory'\n[tier.limits]\n"
    (tier,) = configured(tmp_path, f"{head}bandwidth_bytes_per_s = '200MiB'").tiers
    assert tier.limits == {"bandwidth_bytes_per_s": 200 * 1024**2}
    assert tier.options == {}
    with pytest.raises(ConfigError, match="did you mean concurrency"):
        configured(tmp_path, f"{head}concurency = 3")
    with pytest.raises(ConfigError, match="whole number"):
        configured(tmp_path, f"{head}concurrency = 0")
    for limit in ("bytes_in_flight", "bandwidth_bytes_per_s"):
        with pytest.raises(ConfigError, match="at least 1 "):  # with 0 nothing would ever move
            configured(tmp_path, f"{head}{limit} = 0")


@pytest.mark.parametrize(
    "text, what, hint",
    [
        ("[policy]\ncold_copis = 2", "policy.cold_copis", "policy.cold_copies"),
        ("[polcy]\ncold_copies = 2", "polcy", "policy"),
        ("state_dri = 'x'", "state_dri", "state_dir"),
        ("[[tiers]]\nname = 'x'", "tiers", "tier"),
        ("zzzzzzzz = 1", "zzzzzzzz", "config show"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known(
    tmp_path: Path, text: str, what: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(tmp_path, text)
    assert what in caught.value.what
    assert hint in caught.value.todo


def test_an_unknown_variable_or_flag_is_refused_with_the_nearest_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="WEIGHTCTL_STATE_DIR") as caught:
        configured(tmp_path, environ={"WEIGHTCTL_STATEDIR": "x"})
    assert "WEIGHTCTL_STATEDIR" in caught.value.what
    with pytest.raises(ConfigError, match=r"did you mean policy\.paused"):
        configured(tmp_path, assignments=["policy.pased=true"])
    with pytest.raises(ConfigError, match="no value"):
        configured(tmp_path, assignments=["policy.paused"])


def test_variables_of_a_kubernetes_service_of_that_name_are_not_ours(tmp_path: Path) -> None:
    environ = dict.fromkeys(
        (
            "WEIGHTCTL_PORT",
            "WEIGHTCTL_PORT_80_TCP_ADDR",
            "WEIGHTCTL_SERVICE_HOST",
            "WEIGHTCTL_SERVICE_PORT_HTTP",
        ),
        "tcp://10.0.0.1:80",
    )
    assert configured(tmp_path, environ=environ).policy() == Policy()


@pytest.mark.parametrize(
    "key, value, why",
    [
        ("policy.cold_copies", "two", "whole number from 1 to 16"),
        ("policy.cold_copies", "0", "whole number from 1 to 16"),
        ("policy.mass_change_share", "1.5", "from 0 to 1"),
        ("policy.evidence_max_age_s", "soon", "duration"),
        ("policy.evidence_max_age_s", "31d", "from 1s to"),
        ("policy.pass_bytes_max", "-1", "size"),
        ("policy.pass_bytes_max", "4 bananas", "size"),
        ("policy.pass_bytes_max", "0", "at least 1 "),
        ("import.payload_bytes", str(PAYLOAD_BYTES_MIN - 1), f"at least {PAYLOAD_BYTES_MIN} "),
        ("lease.ttl_ms", "86400001", "from 1ms to 86400000ms"),
        ("policy.windows", "25:00-26:00", "from 00:00 to 23:59"),
        ("policy.windows", "10:00-10:00", "begins when it ends"),
        ("policy.tier_preference", "a,a", "twice"),
        ("policy.retired_tiers", "local_disk", "is a configured tier"),
        ("policy.paused", "maybe", "true or false"),
        ("lease.ttl_ms", "2d", "from 1ms to"),
        ("state_dir", "", "not empty"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_with_what_would(
    tmp_path: Path, key: str, value: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)):
        configured(tmp_path, assignments=[f"{key}={value}"])


@pytest.mark.parametrize(
    "key, word, value",
    [
        ("policy.pass_bytes_max", "4GiB", 4 * 1024**3),
        ("policy.pass_bytes_max", "1.5TB", 1_500_000_000_000),
        ("policy.pass_bytes_max", "17", 17),
        ("policy.pass_bytes_max", "1", 1),
        ("import.payload_bytes", str(PAYLOAD_BYTES_MIN), PAYLOAD_BYTES_MIN),
        ("lease.ttl_ms", "86400000", 86_400_000),
        ("policy.evidence_max_age_s", "2h", 7200.0),
        ("policy.settle_s", "1.5", 1.5),
        ("lease.ttl_ms", "90s", 90_000),
        ("policy.import_abandon_ms", "1500", 1500),
        ("policy.paused", "ON", True),
        ("policy.tier_preference", "dfs, nof", ("dfs", "nof")),
        ("policy.windows", "22:00-06:30", (Window(start_minute=1320, end_minute=390),)),
    ],
)
def test_text_may_carry_units(key: str, word: str, value: object) -> None:
    assert BY_KEY[key].parse(word) == value


def test_a_window_is_shown_as_it_is_written() -> None:
    assert shown(BY_KEY["policy.windows"].parse(["22:00-06:30"])) == ["22:00-06:30"]


@pytest.mark.parametrize(
    "raw, why",
    [
        (b"\xff\xfe", "not TOML"),
        (b"a = ", "not TOML"),
        (b"policy = 3", "write a section"),
        (b"tier = 3", "[[tier]]"),
        (b"tier = []", "empty"),
        (b"[[tier]]\nkind = 'memory'", "needs a name"),
        (b"[[tier]]\nname = 'UPPER'\nkind = 'memory'", "needs a name"),
        (b"[[tier]]\nname = 'a'", "kind"),
        (b"[[tier]]\nname='a'\nkind='m'\n[[tier]]\nname='a'\nkind='m'", "two tiers"),
        (b"[policy]\ncold_copies = true", "whole number"),
        (b"[policy]\nsettle_s = nan", "duration"),
        (b"[policy]\nwindows = [1]", "list of texts"),
        (b"x = " + b"[" * 5000, "not TOML"),
        (b"#" * (1024 * 1024 + 1), "over"),
    ],
)
def test_a_broken_file_is_refused_with_its_name(tmp_path: Path, raw: bytes, why: str) -> None:
    file = tmp_path / "broken.toml"
    file.write_bytes(raw)
    with pytest.raises(ConfigError, match=re.escape(why)) as caught:
        load(environ={"HOME": "/"}, file=str(file))
    assert str(file) in f"{caught.value}"


def test_a_named_file_that_is_missing_is_refused_and_an_unnamed_one_is_not(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load(environ={"WEIGHTCTL_CONFIG": str(tmp_path / "none.toml")})
    with pytest.raises(ConfigError, match="directory"):
        load(environ={}, file=str(tmp_path))
    assert load(environ={"HOME": str(tmp_path)}).origins["state_dir"] == "default"
