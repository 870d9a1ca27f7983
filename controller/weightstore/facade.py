"""`WeightStore`: put a model in, adopt one, load it back.  Layer: weightstore.  Public API.

Beside the metadata store it needs the tiers only.  Every call is cancellable at any await: an
interrupted put is resumed by the same put, an interrupted load leaves no lease and no file behind.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeGuard

from anyio import to_thread

from weightctl.controller.core.ranges import TensorSlice
from weightctl.controller.core.records import Availability
from weightctl.controller.core.refusals import unavailable
from weightctl.controller.errors import ErrorCode, WeightError
from weightctl.controller.weightstore.adopting import Adoption, AdoptReport
from weightctl.controller.weightstore.candidate import candidate
from weightctl.controller.weightstore.drafting import require_text
from weightctl.controller.weightstore.load import Loader, LoadRequest
from weightctl.controller.weightstore.options import WeightStoreOptions
from weightctl.controller.weightstore.put import Import, PutReport
from weightctl.controller.weightstore.readers import opened
from weightctl.controller.weightstore.targets import Into, IntoArrays

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from weightctl.controller.core.identity import Identity
    from weightctl.controller.ports import Clock, Entropy, Limiter, Tier
    from weightctl.controller.store.store import WeightMetadataStore
    from weightctl.controller.weightstore.mover import LoadReport
    from weightctl.controller.weightstore.options import ProgressCallback

LEASE_TTL_MS = 60_000
"""Renewed every 20 s; a reader that dies blocks deletion for at most a minute."""


class WeightStore:
    """Managed upload and load of model weights over a metadata store and its tiers.

    The order of `tiers` is the order of preference for new copies.
    """

    def __init__(
        self,
        store: WeightMetadataStore,
        tiers: Sequence[Tier],
        *,
        clock: Clock,
        entropy: Entropy,
        options: WeightStoreOptions | None = None,
        limits: Mapping[str, Limiter] | None = None,
    ) -> None:
        """`limits`: the bandwidth of tiers by name; a tier without one is as fast as it is."""
        self._store = store
        self._tiers = tuple(tiers)
        self._clock = clock
        self._entropy = entropy
        self.options = options or WeightStoreOptions()
        self._limits = limits or {}

    async def put(
        self,
        identity: Identity,
        source: str | os.PathLike[str],
        *,
        tiers: Sequence[str] | None = None,
        progress: ProgressCallback | None = None,
    ) -> PutReport:
        """Import a safetensors file, or a folder of them, as `identity` and make it READY.

        Payloads go to the named tiers, by default to the first hot tier with room and the first
        persistent cold tier with room, whose copy is read back before the commit.  A call that was
        interrupted is resumed by the same call.  A READY revision with the same content is a no-op.

        Raises SourceError for a source that is not whole or that changed; WeightError
        INVALID_ARGUMENT for an identity, CONFLICT for other content under it; CapacityError;
        ConfigError for tiers; other ReconcileErrors when a tier does not do its part.
        """
        require_text(identity)
        async with opened(source) as model:
            importer = Import(
                self._store,
                self._tiers,
                clock=self._clock,
                options=self.options,
                limits=self._limits,
                progress=progress,
            )
            return await importer.run(identity, model, tiers)

    async def adopt(
        self,
        identity: Identity,
        manifest: bytes,
        *,
        digests: Mapping[str, bytes] | None = None,
        progress: ProgressCallback | None = None,
    ) -> AdoptReport:
        """Make a revision of objects that the tiers hold already, by its canonical manifest.

        Every replica that a tier shows is read back.  What its bytes must be is told by `digests`
        (raw SHA-256 by object key), else by what tiers recorded when they stored it, else all tiers
        have to agree.  Payloads are never written or removed; a manifest object that no tier has is
        put there last.  A report with obstacles, or an error, means that nothing was adopted.

        Raises ManifestError; WeightError INVALID_ARGUMENT for a manifest of something else,
        CONFLICT for an identity that is known; UnknownOutcomeError when objects changed meanwhile;
        other ReconcileErrors for the manifest object.
        """
        wanted = await to_thread.run_sync(candidate, identity, manifest, digests or {})
        adoption = Adoption(
            self._store,
            self._tiers,
            clock=self._clock,
            options=self.options,
            limits=self._limits,
            progress=progress,
        )
        return await adoption.run(wanted)

    async def load(
        self,
        identity: Identity,
        tensors: Iterable[str | TensorSlice] | None = None,
        *,
        into: Into | None = None,
        holder: str = "load",
        ttl_ms: int = LEASE_TTL_MS,
        verify: bool | None = None,
        progress: ProgressCallback | None = None,
    ) -> LoadReport:
        """Load tensors (all by default, whole or sliced) under a lease that is kept alive.

        `into` says where to; by default read-only arrays, mapped where a tier allows it.  `verify`
        checks the SHA-256 of every object that is read whole; by default it does so for folders and
        buffers and not for arrays, where it would cost the reading that mapping saves.  The lease's
        holder is `holder` with a token of this call, so that loads never share a lease.

        Raises WeightError NOT_FOUND, NOT_READY, BUSY, STALE_GENERATION, LEASE_EXPIRED or
        INVALID_ARGUMENT; IntegrityError when no replica has the right bytes; NothingReadableError
        when none can be read, TransientError when a tier that may have it gave no answer;
        ManifestError; TargetError for the place to load into.
        """
        wanted = None if tensors is None else _slices(tensors)
        record = (await self._store.get(identity=identity)).metadata
        if record.availability is not Availability.READY:
            raise unavailable(record)
        target = into or IntoArrays()
        request = LoadRequest(
            wanted=wanted,
            into=target,
            holder=f"{holder}#{self._entropy.token(8)}",
            ttl_ms=ttl_ms,
            verify=not isinstance(target, IntoArrays) if verify is None else verify,
            token=self._entropy.token(8),
            progress=progress,
        )
        loader = Loader(
            store=self._store,
            tiers=self._tiers,
            clock=self._clock,
            options=self.options,
            limits=self._limits,
        )
        return await loader.run(record, request)


def _slices(tensors: Iterable[object]) -> list[TensorSlice]:
    """What is wanted, as slices.  Raises WeightError INVALID_ARGUMENT for anything else.

    A single text is refused, too: it is an iterable of names of one letter.
    """
    if isinstance(tensors, str) or not isinstance(tensors, Iterable):
        raise _not_wanted(tensors, "it is not a collection of tensors")
    slices = []
    for item in tensors:
        wanted = TensorSlice(tensor_id=item) if isinstance(item, str) else item
        if not _is_slice(wanted):
            raise _not_wanted(item, "it is neither a tensor's name nor a TensorSlice of numbers")
        slices.append(wanted)
    return slices


def _is_slice(item: object) -> TypeGuard[TensorSlice]:
    if not isinstance(item, TensorSlice):
        return False
    bounds: tuple[object, ...] = (item.start, item.dim or 0, item.stop or 0)
    name: tuple[object] = (item.tensor_id,)
    return isinstance(name[0], str) and all(isinstance(bound, int) for bound in bounds)


def _not_wanted(item: object, why: str) -> WeightError:
    return WeightError(
        ErrorCode.INVALID_ARGUMENT,
        f"{reprlib.repr(item)} cannot be loaded",
        why,
        'name the tensors, as in load(identity, ["embed", TensorSlice(...)])',
    )
