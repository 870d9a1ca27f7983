"""The tiers of a released Mooncake Store, beside its Master.  Layer: a tier.

One connection is shared by all tiers that name the same Master: `admin` observes over HTTP, which
takes no lease; `engine` runs the wheel's client in worker processes; `book` keeps what the Master
does not tell.  Read README.md beside this file for what the release can and cannot do.  A worker
imports this package, so it imports nothing heavy itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weightctl.controller.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weightctl.controller.ports import Tier, TierContext


def memory(name: str, options: Mapping[str, object], context: TierContext, /) -> Tier:
    """MEMORY replicas on the Master's hosts: the hot tier.  Raises ConfigError."""
    return _tier(name, "mooncake-memory", options, context)


def local_disk(name: str, options: Mapping[str, object], context: TierContext, /) -> Tier:
    """LOCAL_DISK replicas, which the hosts write by themselves.  Raises ConfigError."""
    return _tier(name, "mooncake-local-disk", options, context)


def disk(name: str, options: Mapping[str, object], context: TierContext, /) -> Tier:
    """DISK replicas below the Master's `root_fs_dir`.  Raises ConfigError."""
    return _tier(name, "mooncake-disk", options, context)


def nof(name: str, options: Mapping[str, object], context: TierContext, /) -> Tier:
    """NoF replicas, observed where a Master has them; none can be made.  Raises ConfigError."""
    return _tier(name, "mooncake-nof", options, context)


def dfs(name: str, options: Mapping[str, object], context: TierContext, /) -> Tier:
    """Raises ConfigError: the release does not show DFS replicas to anybody who takes no lease."""
    del options, context
    raise ConfigError(
        f"tier {name!r} cannot be used",
        "MissingCapability: this Mooncake release does not show DFS replicas over HTTP, so whether"
        " one is there could only be asked by taking a lease on it",
        "use a tier of the kind 'dfs' on the same file system, or mooncake-local-disk",
    )


def _tier(name: str, kind: str, options: Mapping[str, object], context: TierContext, /) -> Tier:
    try:
        from weightctl.adapters.mooncake.connection import shared  # noqa: PLC0415 - see above
        from weightctl.adapters.mooncake.options import parse  # noqa: PLC0415
        from weightctl.adapters.mooncake.root_fs.tier import DiskTier  # noqa: PLC0415
        from weightctl.adapters.mooncake.tier import MooncakeTier  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"tier {name!r} cannot be used",
            f"MissingLibrary: {error}",
            "pip install 'weightctl[mooncake]'",
        ) from error

    parsed = parse(name, kind, options)
    made = DiskTier if kind == "mooncake-disk" else MooncakeTier
    return made(name, parsed, shared(parsed.connection, context))
