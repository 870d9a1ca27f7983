"""The capability gate as configuration, from each layer to the store."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import IDENTITY, Cli
from weightctl.controller.cli.exit_codes import ExitCode
from weightctl.controller.config.loading import load
from weightctl.controller.errors import ConfigError
from weightctl.controller.store.gate import CapabilityGate

CLOSED = {"enable_ha": "true", "enable_oplog": "true", "backend": "etcd"}
CONFIRMED = {"weight_management_oplog_capability_confirmed": "true"}

Layers = dict[str, Any]


def in_file(values: Mapping[str, str]) -> Layers:
    lines = [
        f"{key} = {word}" if word == "true" else f'{key} = "{word}"' for key, word in values.items()
    ]
    return {"file": "\n".join(["[ha]", *lines, ""])}


def in_environment(values: Mapping[str, str]) -> Layers:
    return {"environ": {f"WEIGHTCTL_HA_{key.upper()}": word for key, word in values.items()}}


def in_flags(values: Mapping[str, str]) -> Layers:
    return {"assignments": [f"ha.{key}={word}" for key, word in values.items()]}


LAYERS = {"file": in_file, "environment": in_environment, "flag": in_flags}


def loaded(
    folder: Path,
    file: str = "",
    environ: Mapping[str, str] | None = None,
    assignments: Sequence[str] = (),
) -> CapabilityGate:
    """The gate of a configuration with these layers."""
    path = folder / "weightctl.toml"
    path.write_text(file, encoding="utf-8")
    config = load(environ=environ or {}, file=str(path), assignments=assignments, state_dir="/x")
    return CapabilityGate(**config.section("ha"))


@pytest.mark.acceptance(112)
@pytest.mark.parametrize("confirmed_in", [None, *LAYERS])
@pytest.mark.parametrize("closed_in", LAYERS)
def test_flag_is_false_by_default_and_propagates_through_each_layer(
    tmp_path: Path, closed_in: str, confirmed_in: str | None
) -> None:
    layers = LAYERS[closed_in](CLOSED)
    if confirmed_in == closed_in:
        layers = LAYERS[closed_in](CLOSED | CONFIRMED)
    elif confirmed_in is not None:
        layers |= LAYERS[confirmed_in](CONFIRMED)
    gate = loaded(tmp_path, **layers)
    assert gate.oplog_enabled
    assert gate.weight_management_oplog_capability_confirmed is (confirmed_in is not None)
    assert gate.enabled is (confirmed_in is not None)


@pytest.mark.acceptance(112)
def test_nothing_configured_leaves_the_gate_open(tmp_path: Path) -> None:
    gate = loaded(tmp_path)
    assert gate == CapabilityGate()
    assert not gate.weight_management_oplog_capability_confirmed
    assert gate.enabled


def test_a_backend_that_is_not_known_is_no_open_gate(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one of none, etcd"):
        loaded(tmp_path, assignments=["ha.backend=ectd"])


@pytest.mark.acceptance(112)
@pytest.mark.parametrize("layer", LAYERS)
def test_closed_gate_reaches_the_store_from_each_layer(tmp_path: Path, layer: str) -> None:
    layers = LAYERS[layer](CLOSED)
    cli = Cli(tmp_path, extra=layers.get("file", ""))
    cli.ready()
    environ = layers.get("environ", {})
    flags = [word for each in layers.get("assignments", ()) for word in ("--set", each)]
    before = cli.json("get", IDENTITY)
    evict = ("evict", IDENTITY, *flags)
    refusal = cli.run(*evict, env=environ, code=ExitCode.DURABILITY)
    assert "CapabilityUnconfirmed" in refusal.err
    assert cli.json("get", IDENTITY) == before
    confirmed = [word for each in in_flags(CONFIRMED)["assignments"] for word in ("--set", each)]
    cli.run(*evict, *confirmed, env=environ)
    assert cli.json("get", IDENTITY)["operation"]["operation"] == "EVICTING"


def test_doctor_and_config_show_tell_of_a_closed_gate(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    closed = [word for each in in_flags(CLOSED)["assignments"] for word in ("--set", each)]
    shown = cli.run("config", "show", *closed)
    assert "the capability gate is closed" in shown.err
    assert "ha.weight_management_oplog_capability_confirmed" in shown.err
    assert "capability gate" not in cli.run("config", "show").err
    checks = cli.json("doctor", *closed, code=ExitCode.ERROR)["checks"]
    (check,) = [check for check in checks if check["name"] == "capability gate"]
    assert not check["ok"]
    assert "CapabilityUnconfirmed" in check["detail"]
    cli.json("doctor")
