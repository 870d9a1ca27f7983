"""The configuration of one command line.  Layer: cli."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from weightctl.controller.config.loading import load

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
