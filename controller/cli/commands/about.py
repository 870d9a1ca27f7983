"""Verbs about names, settings and weightctl itself; none needs a state directory.  Layer: cli."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.controller.api import views
from weightctl.controller.cli import exit_codes
from weightctl.controller.cli.exit_codes import ExitCode
from weightctl.controller.cli.settings import gate_refusal, load_config
from weightctl.controller.config.settings import SETTINGS
from weightctl.controller.config.values import shown
from weightctl.controller.core.identity import parse_identity

if TYPE_CHECKING:
    import argparse

    from weightctl.controller.api import documents as doc
    from weightctl.controller.cli.output import Console
    from weightctl.controller.config.loading import Config


def keys(args: argparse.Namespace, console: Console) -> int:
    """Print every derived name."""
    console.document(views.keys(parse_identity(args.identity)))
    return ExitCode.OK


def config_show(args: argparse.Namespace, console: Console) -> int:
    """Print every setting; a closed capability gate is named beside them."""
    config = load_config(args)
    console.document(_configuration(config, origin=args.origin))
    refusal = gate_refusal(config)
    if refusal is not None:
        console.note(f"the capability gate is closed: {refusal.why}\nnext: {refusal.todo}")
    return ExitCode.OK


def exit_codes_(_: argparse.Namespace, console: Console) -> int:
    """Print the table of exit codes."""
    console.document(exit_codes.document())
    return ExitCode.OK


def _configuration(config: Config, *, origin: bool) -> doc.Configuration:
    settings: list[doc.SettingFields] = []
    for setting in SETTINGS:
        row: doc.SettingFields = {
            "key": setting.key,
            "value": shown(config.values[setting.key]),
            "about": setting.about,
        }
        if origin:
            row["origin"] = config.origins[setting.key]
            row["variable"] = setting.variable
        settings.append(row)
    return {
        "apiVersion": views.API_VERSION,
        "kind": "Configuration",
        "settings": settings,
        "tiers": [
            {"name": tier.name, "plugin": tier.kind, "options": dict(tier.options)}
            for tier in config.tiers
        ],
        "tiersOrigin": config.tiers_origin,
    }
