"""The parameters of each verb, checked at the edge.  Layer: api.

They come from the command line or through the control socket; the field names are the protocol's.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from weightctl.controller.core.identity import U64_MAX, Identity, parse_identity
from weightctl.controller.core.records import LEASE_TTL_MS_MAX, Residency
from weightctl.controller.core.refusals import invalid

_TIMEOUT_S_MAX = 366 * 86_400.0


def _identity(text: object) -> object:
    return parse_identity(text) if isinstance(text, str) else text


IdentityText = Annotated[Identity, BeforeValidator(_identity)]
Generation = Annotated[int, Field(ge=1, le=U64_MAX)]
TtlMs = Annotated[int, Field(ge=1, le=LEASE_TTL_MS_MAX)]


class _Params(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)


class One(_Params):
    """A verb about one revision."""

    identity: IdentityText


class Some(_Params):
    """A verb about one revision, or all."""

    identity: IdentityText | None = None


class Nothing(_Params):
    """A verb without parameters."""


class Change(One):
    """A verb that starts something on a revision."""

    expected_generation: Generation | None = None
    wait: bool = False
    timeout_s: Annotated[float, Field(gt=0, le=_TIMEOUT_S_MAX)] | None = None
    dry_run: bool = False


class Repair(Change):
    """`repair`; without a target the revision is repaired where it is."""

    target: Literal["hot", "cold"] | None = None

    def residency(self) -> Residency | None:
        """The target as the contract names it."""
        return None if self.target is None else Residency[self.target.upper()]


class Import(One):
    """`import`; `source` is an absolute path."""

    source: str
    dry_run: bool = False


class Adopt(One):
    """`adopt`; `manifest` is an absolute path, and so is `digests` where it is given."""

    manifest: str
    digests: str | None = None
    dry_run: bool = False


class Load(One):
    """`load`; `folder` is an absolute path, also of a file; no `tensors` means all.

    `force` replaces what is there under the names that are written.
    """

    folder: str
    tensors: Annotated[list[str], Field(fail_fast=True)] | None = None
    holder: str
    force: bool = False


class Acquire(One):
    """`lease acquire`."""

    holder: str
    ttl_ms: TtlMs | None = None
    expected_generation: Generation | None = None


class Renew(_Params):
    """`lease renew`."""

    lease_id: int
    tenant_id: str
    ttl_ms: TtlMs | None = None


class Release(_Params):
    """`lease release`."""

    lease_id: int
    tenant_id: str


class Tiers(_Params):
    """`tiers`; `examine` asks each also how its medium is set up, which takes longer."""

    examine: bool = False


class File(_Params):
    """`snapshot save` and `snapshot restore`; `file` is an absolute path."""

    file: str


PARAMS: dict[str, type[BaseModel]] = {
    "plan": Some,
    "explain": One,
    "tensors": One,
    "tiers": Tiers,
    "orphans": Nothing,
    "health": Nothing,
    "evict": Change,
    "rehydrate": Change,
    "repair": Repair,
    "delete": Change,
    "import": Import,
    "adopt": Adopt,
    "load": Load,
    "lease acquire": Acquire,
    "lease renew": Renew,
    "lease release": Release,
    "snapshot save": File,
    "snapshot restore": File,
}
"""Every verb that acts, or asks the tiers, with its parameters."""


def check(verb: str, params: Mapping[str, Any]) -> Any:  # noqa: ANN401 - the model of that verb
    """The parameters as the verb's model.  Raises INVALID_ARGUMENT for verb or parameter."""
    if verb not in PARAMS:
        near = difflib.get_close_matches(verb, list(PARAMS), n=1, cutoff=0.0)
        raise invalid(f"verb {verb!r}", f"it is not known; the nearest is {near[0]}")
    try:
        return PARAMS[verb].model_validate(dict(params))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise invalid(f"{verb}: {where}", f"{first['msg']}, not {first['input']!r}") from None
