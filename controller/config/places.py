"""Where files stand when nobody says: the XDG base directories.  Layer: config."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from weightctl.controller.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_MEMORY_ROOT = Path("/dev/shm")  # noqa: S108 - a folder of the user in there is made by the tier


def default_file(environ: Mapping[str, str]) -> Path:
    """The configuration file that is read when none is named; it need not exist."""
    return _base(environ, "XDG_CONFIG_HOME", ".config") / "config.toml"


def default_state_dir(environ: Mapping[str, str]) -> Path:
    """The state directory when none is named."""
    return _base(environ, "XDG_STATE_HOME", ".local/state")


def memory_path(state_dir: str) -> str:
    """The memory tier's folder of that state directory alone."""
    mark = hashlib.sha256(os.fsencode(state_dir)).hexdigest()[:12]
    return str(_MEMORY_ROOT / f"weightctl-{mark}")


def expanded(text: str, origin: str) -> Path:
    """The path with its leading `~` or `~user` replaced.  Raises ConfigError for an unknown user.

    origin: where the text was given, for people.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ConfigError(
            f"path {text!r} from {origin}",
            f"{ConfigError.reason}: nobody knows the home of {text.partition('/')[0]!r}",
            "correct it and try again",
        ) from None


def _base(environ: Mapping[str, str], variable: str, under_home: str) -> Path:
    base = Path(environ.get(variable, ""))
    if not base.is_absolute():  # the XDG specification ignores a relative path
        base = Path(environ.get("HOME") or Path.home()) / under_home
    return base / "weightctl"
