"""What a person may set of the tier.

Secrets are no options, because options are shown by `weightctl config show`: they come from the
environment, by default AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; where those
are not set, obstore asks the machine it runs on, as other S3 clients do.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from weightctl.adapters.shared.options import TierOptions
from weightctl.adapters.shared.ownership import ADOPT
from weightctl.controller.errors import ConfigError

KNOWN = (
    "bucket", "prefix", "endpoint", "region", "env_prefix", "capacity_bytes", "deadline_s",
    "retries", "grace_s", ADOPT,
)  # fmt: skip
PREFIX_BYTES_MAX = 100
"""What the longest name of a replica leaves of the 1,024 bytes that S3 allows."""
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Keys from the environment; never part of a message or a `repr`."""

    key_id: str = field(repr=False)
    secret: str = field(repr=False)
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The checked options; sizes in bytes, durations in seconds."""

    bucket: str
    prefix: str
    endpoint: str
    region: str
    credentials: Credentials | None
    capacity_bytes: int | None
    """None: as much as anybody pays for."""
    deadline_s: float
    """For one call, with its retries."""
    retries: int
    """How often obstore repeats a request that had no answer or a 5xx one."""
    grace_s: float
    """How old an unfinished upload must be before it counts as a killed writer's."""
    adopt: bool

    @property
    def where(self) -> str:
        """The place, for people."""
        return f"s3://{self.bucket}/{self.prefix}"


def parse(name: str, options: Mapping[str, object]) -> Options:
    """Check the options of the tier `name`.  Raises ConfigError."""
    given = TierOptions(name, options, KNOWN)
    region = given.text("region", "us-east-1")
    parsed = Options(
        bucket=given.text("bucket"),
        prefix=given.text("prefix", "weightctl"),
        endpoint=given.text("endpoint", f"https://s3.{region}.amazonaws.com").rstrip("/"),
        region=region,
        credentials=_credentials(given.text("env_prefix", "AWS")),
        capacity_bytes=given.size_bytes("capacity_bytes"),
        deadline_s=given.seconds("deadline_s", 30.0),
        retries=given.count("retries", 2),
        grace_s=given.seconds("grace_s", 3600.0),
        adopt=given.flag(ADOPT),
    )
    if not _BUCKET.fullmatch(parsed.bucket):
        raise _refused(name, "bucket", parsed.bucket, "3 to 63 of a-z 0-9 . -")
    if not _PREFIX.fullmatch(parsed.prefix) or len(parsed.prefix) > PREFIX_BYTES_MAX:
        rule = f"words of A-Z a-z 0-9 . _ - with / between, {PREFIX_BYTES_MAX} bytes at most"
        raise _refused(name, "prefix", parsed.prefix, rule)
    url = urlsplit(parsed.endpoint)
    if url.scheme not in {"http", "https"} or not url.hostname or url.path or url.query:
        raise _refused(name, "endpoint", parsed.endpoint, "http(s)://HOST[:PORT] and nothing else")
    if url.username is not None:
        raise _refused(name, "endpoint", "it", "no user or password; keys are in the environment")
    return parsed


def _credentials(prefix: str) -> Credentials | None:
    key_id = os.environ.get(f"{prefix}_ACCESS_KEY_ID", "")
    secret = os.environ.get(f"{prefix}_SECRET_ACCESS_KEY", "")
    token = os.environ.get(f"{prefix}_SESSION_TOKEN", "")
    return Credentials(key_id=key_id, secret=secret, token=token) if key_id and secret else None


def _refused(name: str, option: str, value: str, rule: str) -> ConfigError:
    return ConfigError(
        f"tier {name!r}: option {option!r} cannot be used",
        f"{value!r} breaks its rule",
        f"it takes {rule}",
    )
