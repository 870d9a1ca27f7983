"""The configuration of one command line.  Layer: cli."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from weightctl.controller.config.loading import load
from weightctl.controller.errors import WeightError
from weightctl.controller.store.gate import CapabilityGate

if TYPE_CHECKING:
    import argparse

    from weightctl.controller.config.loading import Config


def load_config(args: argparse.Namespace) -> Config:
    """File, environment and flags; every verb calls it, so all refuse alike.

    Raises ConfigError.
    """
    return load(
        environ=os.environ,
        file=getattr(args, "config", None),
        assignments=[*getattr(args, "assignments_before", []), *getattr(args, "assignments", [])],
        state_dir=getattr(args, "state_dir", None),
    )


def gate_refusal(config: Config) -> WeightError | None:
    """What every change of a revision, lease or operation is refused with; None: it is admitted."""
    try:
        CapabilityGate(**config.section("ha")).admit("any revision, lease or operation")
    except WeightError as error:
        return error
    return None
