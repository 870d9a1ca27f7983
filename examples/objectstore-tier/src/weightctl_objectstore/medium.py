"""Whose bucket it is: the marker, one object beside the replicas.

It holds a uuid, the store that owns the place, and the highest term served of each holder.  The
uuid is remembered in the controller's state directory.  A bucket without that marker (emptied, made
anew, or another one behind the same name) is therefore away, and never "empty".  The marker is only
ever changed on the condition that it still is what was read, so that of two who change it at once
one is told to read again.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from json import dumps, loads
from pathlib import Path
from typing import TypeVar

from anyio import Lock, to_thread

from weightctl.adapters.shared.ownership import is_foreign, refuse_foreign, tell_adopted
from weightctl.adapters.shared.remembering import (
    read_remembered,
    refuse_second_name,
    write_remembered,
)
from weightctl.adapters.shared.translate import error_from_os
from weightctl.controller.errors import (
    ConfigError,
    FencedError,
    TerminalError,
    TransientError,
    UnknownOutcomeError,
)
from weightctl.controller.ports import NOT_SET_UP, SET_UP_BY_USE, Fence, TierContext
from weightctl_objectstore.bucket import Bucket

MARKER = "weightctl-tier.json"
FORMAT = 1
HOLDERS_MAX = 1024
T = TypeVar("T")
_TRIES = 8
_UUID = re.compile(r"[0-9A-Za-z-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """What the marker object says."""

    uuid: str
    owner: str = ""
    terms: dict[str, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The object's content."""
        content = {"format": FORMAT, "uuid": self.uuid, "owner": self.owner, "terms": self.terms}
        return dumps(content).encode()


class Medium:
    """The place that the tier was configured for, if it is there.

    remembered: file in the state directory that keeps the marker's uuid; adopt: the place becomes
    this store's, whosever it was.
    """

    def __init__(
        self, bucket: Bucket, *, where: str, remembered: Path, context: TierContext, adopt: bool
    ) -> None:
        self._bucket = bucket
        self._where = where
        self._remembered = remembered
        self._context = context
        self._adopt = adopt and not context.read_only
        self._uuid = ""
        self._learning = Lock()

    async def enter(self) -> None:
        """Set the place up where it is new.  Raises ConfigError if it cannot be, and as epoch."""
        await self._sight()

    async def epoch(self) -> str:
        """The marker's uuid, now: our place is there and ours.

        Raises TransientError when it is away or was never set up, TerminalError when it is another
        store's or cannot be set up.
        """
        try:
            return (await self._sight())[0].uuid
        except ConfigError as error:  # it was away when the tier was entered
            raise TerminalError(error.what, error.why, error.todo) from error

    async def admit(self, fence: Fence) -> None:
        """Let `fence` act, remembering its term in the bucket.  Raises FencedError, and as epoch.

        An object store cannot refuse a write by its fence, so a replica that an older term had
        already sent off may still arrive after this.  It has a name of its own and the right
        content: a surplus copy that observation shows, never a wrong one.
        """
        for _ in range(_TRIES):
            marker, e_tag = await self._sight()
            served = marker.terms.get(fence.holder)
            if served is not None and served > fence.term:
                raise FencedError(
                    f"term {fence.term} of holder {fence.holder}",
                    f"term {served} has already been served in {self._where}",
                    "a newer process has taken over; this one must stop acting",
                )
            if served == fence.term:
                return
            terms = {**marker.terms}
            terms.pop(fence.holder, None)
            terms[fence.holder] = fence.term  # last: the longest unused are forgotten first
            kept = dict(list(terms.items())[-HOLDERS_MAX:])
            if await self._changed(replace(marker, terms=kept), e_tag):
                return
        raise TransientError(f"the marker of {self._where}", "others keep changing it", "try again")

    async def _sight(self) -> tuple[Marker, str]:
        """The marker and its ETag; the first time it is learned which one belongs here."""
        if self._uuid:
            return await self._settled(self._uuid)
        async with self._learning:
            expected = await self._expected()
            marker, e_tag = await self._settled(expected)
            if not expected:  # nor may it be the medium of another tier of this store
                read_only = self._context.read_only
                keep = refuse_second_name if read_only else partial(write_remembered, alone=True)
                await self._on_disk(partial(keep, self._remembered, marker.uuid))
            self._uuid = marker.uuid
            return marker, e_tag

    async def _expected(self) -> str:
        """The uuid of the marker that belongs here; empty when nothing was set up yet."""
        return self._uuid or await self._on_disk(partial(read_remembered, self._remembered))

    async def _settled(self, expected: str) -> tuple[Marker, str]:
        """The marker, made, claimed and adopted where that is ours to do."""
        for _ in range(_TRIES):
            found = await self._read(expected)
            if found is None:
                await self._begin()
            elif await self._claimed(*found):
                refuse_foreign(self._where, found[0].owner, self._context.holder)
                return found
        raise TransientError(f"the marker of {self._where}", "others keep changing it", "try again")

    async def _read(self, expected: str) -> tuple[Marker, str] | None:
        """The marker; None where there is none and none is expected."""
        found = await self._bucket.get(MARKER)
        if found is None:
            if expected:
                raise self._away(f"{MARKER} is missing")
            return None
        marker = self._decoded(found[0])
        if expected and marker.uuid != expected:
            raise self._away(f"it is {marker.uuid}, expected {expected}")
        return marker, found[1]

    async def _begin(self) -> None:
        """Make the marker of a place where nothing is."""
        empty = await self._bucket.is_empty(but=MARKER)  # which another one may just have put
        if self._context.read_only:
            why = "it was never used" if empty else f"it holds objects and no {MARKER}"
            todo = SET_UP_BY_USE if empty else "give this tier another prefix"
            raise TransientError(f"{NOT_SET_UP}: {self._where}", why, todo)
        if not empty:
            raise ConfigError(
                f"{self._where} cannot be set up as a tier",
                f"it holds objects and no {MARKER}",
                "give this tier another prefix, or the bucket that belongs there",
            )
        marker = Marker(uuid=self._context.entropy.token(16), owner=self._context.holder)
        await self._bucket.put_new(MARKER, marker.encode())  # whoever was quicker: it is read next

    async def _claimed(self, marker: Marker, e_tag: str) -> bool:
        """Make the place ours where it is nobody's, or to be adopted; False: read it again."""
        adopted = self._adopt and is_foreign(marker.owner, self._context.holder)
        unclaimed = self._context.holder and not marker.owner and not self._context.read_only
        if not adopted and not unclaimed:
            self._adopt = False
            return True
        if await self._changed(replace(marker, owner=self._context.holder), e_tag):
            self._adopt = False
            if adopted:
                tell_adopted(self._where, marker.owner)
        return False

    async def _changed(self, marker: Marker, e_tag: str) -> bool:
        try:
            return await self._bucket.replace(MARKER, marker.encode(), e_tag)
        except UnknownOutcomeError as error:  # reading it again tells
            raise TransientError(error.what, error.why, error.todo) from error

    async def _on_disk(self, call: Callable[[], T]) -> T:
        path = self._remembered
        try:
            return await to_thread.run_sync(call)
        except OSError as error:
            raise error_from_os(error, f"keeping which medium is the tier's in {path}") from error
        except ValueError as error:
            raise TerminalError(
                f"which medium is the tier's in {self._where} is not known",
                f"{path} is damaged: {error}",
                f"write the uuid of the medium's {MARKER} into it",
            ) from error

    def _decoded(self, content: bytes) -> Marker:
        try:
            said = loads(content)
            if said["format"] > FORMAT:
                raise self._away(f"its format {said['format']} is newer than {FORMAT}")
            terms = {str(holder): int(term) for holder, term in said["terms"].items()}
            marker = Marker(uuid=str(said["uuid"]), owner=str(said["owner"]), terms=terms)
            if not _UUID.fullmatch(marker.uuid):
                raise ValueError(marker.uuid)
            return marker
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise self._away(f"{MARKER} is damaged: {error!r}") from error

    def _away(self, why: str) -> TransientError:
        return TransientError(
            f"the medium of {self._where} is away",
            why,
            "see what lies there; to begin with another bucket, stop the controller and remove "
            f"{self._remembered}",
        )
