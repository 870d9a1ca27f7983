"""Durable changes of the catalog: claim, log, snapshots and failure.  Layer: nof tier.

Owns the superblock in force, the log and the catalog of the one writer.  Invariant: a change is in
the catalog only after its frame was flushed.  After a failed write or flush nothing more is
answered: what is on the medium is not known then, and it is opened and replayed anew.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from weightctl.adapters.nof.header import read_superblock, write_superblock
from weightctl.adapters.nof.index import IndexLog, payload_bytes_max
from weightctl.adapters.nof.layout import Superblock
from weightctl.adapters.nof.records import Catalog, Change, pack, refuse_misfit, unpack
from weightctl.controller.errors import (
    CapacityError,
    ConfigError,
    ReconcileError,
    TerminalError,
    TransientError,
    UnknownOutcomeError,
)
from weightctl.controller.ports import NoCapacity, Outcome, Retry, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weightctl.adapters.nof.medium import Medium

SERIAL_BITS = 32
"""A serial or epoch is a claim and a count of this many bits, so none is ever used twice."""

_READ_ATTEMPTS = 5


def load_catalog(medium: Medium, superblock: Superblock) -> tuple[Catalog, IndexLog]:
    """Replay the index in force.  Raises TerminalError for damage, OSError."""
    log = IndexLog(
        medium,
        superblock.geometry,
        uuid=superblock.uuid,
        half=superblock.half,
        epoch=superblock.epoch,
    )
    catalog = Catalog()
    for payload in log.replay(superblock.sequence, exact=superblock.clean):
        for change in unpack(payload):
            refuse_misfit(change, superblock.geometry.data_blocks)
            catalog.apply(change)
    return catalog, log


def read_catalog(medium: Medium) -> tuple[Superblock, Catalog]:
    """What the index says now, without claiming the device; another process may write to it.

    Raises what `read_superblock` and `load_catalog` raise.
    """
    for attempt in range(_READ_ATTEMPTS):
        superblock = read_superblock(medium)
        try:
            catalog, _ = load_catalog(medium, superblock)
        except TerminalError:
            # A frame that is being written, or a half that is being given up, looks like damage.
            if attempt == _READ_ATTEMPTS - 1:
                raise
            continue
        if read_superblock(medium) == superblock:
            return superblock, catalog
    raise TransientError(
        "the index of the nof device could not be read", "it changes all the time", "try again"
    )


class IndexWriter:
    """The index of a claimed device, open for writing."""

    def __init__(
        self, medium: Medium, superblock: Superblock, *, catalog: Catalog, log: IndexLog
    ) -> None:
        self.superblock = superblock
        self.catalog = catalog
        self.failed = ""
        """Why the device must be opened anew, or an empty text."""
        self._medium = medium
        self._log = log
        self._epochs = 0

    def check(self) -> None:
        """Raise a ReconcileError unless the medium is still this device and still ours to write."""
        self.must_work()
        with self.guard():
            problem = self._medium.replaced()
            if problem:
                raise self._fail(problem)
            try:
                now = read_superblock(self._medium)
            except (ConfigError, TerminalError) as error:
                raise self._fail(f"{error.what}: {error.why}") from error
        if now.uuid != self.superblock.uuid:
            raise self._fail(
                f"device {self.superblock.uuid.hex()} was replaced by {now.uuid.hex()}"
            )
        if now.claim != self.superblock.claim:
            raise self._fail(f"{now.holder.host} (pid {now.holder.pid}) took the device over")

    def carry_out(
        self, changes: Sequence[Change], *, flush_data: bool = False
    ) -> Iterator[Outcome | None]:
        """Make the changes durable and take them over; None, or what went wrong, for each.

        Frame by frame: what is in a durable frame is done even when a later one fails.
        """
        left = len(changes)
        try:
            if flush_data and changes:
                with self.guard():
                    self._medium.sync()
            position = 0
            for payload, count in pack(changes, payload_bytes_max(self.superblock.geometry)):
                self._append(payload)
                for change in changes[position : position + count]:
                    self.catalog.apply(change)
                    left -= 1
                    yield None
                position += count
        except UnknownOutcomeError as error:
            yield from [Unknown(detail=error.why)] * left
        except TransientError as error:
            yield from [Retry(detail=error.why)] * left
        except CapacityError as error:
            yield from [NoCapacity(needed_bytes=error.needed_bytes, free_bytes=0)] * left

    def _append(self, payload: bytes) -> None:
        self.must_work()
        with self.guard():
            if not self._log.fits(len(payload)):
                self._compact()
            if not self._log.fits(len(payload)):
                raise CapacityError(len(payload), 0, "the index of the nof device is full")
        with self.guard(started=True):
            self._log.append(payload, self.superblock.claim)
            self._medium.sync()

    def _compact(self) -> None:
        """Write the catalog into the other half, then put that half in force."""
        self._epochs += 1
        geometry, claim = self.superblock.geometry, self.superblock.claim
        log = IndexLog(
            self._medium,
            geometry,
            uuid=self.superblock.uuid,
            half=1 - self._log.half,
            epoch=(claim << SERIAL_BITS) + self._epochs,
        )
        for payload, _ in pack(self.catalog.changes(), payload_bytes_max(geometry)):
            if not log.fits(len(payload)):
                raise CapacityError(len(payload), 0, "the index of the nof device is full")
            log.append(payload, claim)
        self._medium.sync()
        self._write(half=log.half, epoch=log.epoch, sequence=log.sequence)
        self._log = log

    def _write(self, *, half: int, epoch: int, sequence: int, clean: bool = False) -> None:
        value = replace(self.superblock, half=half, epoch=epoch, sequence=sequence, clean=clean)
        self.superblock = write_superblock(self._medium, value)

    def close(self, *, orderly: bool) -> None:
        """Release the medium; `orderly` says on it that nobody writes to it now.  Never raises."""
        try:
            if orderly and not self.failed:
                log = self._log
                self._write(half=log.half, epoch=log.epoch, sequence=log.sequence, clean=True)
        except OSError:
            pass  # the next opening replays without that help
        finally:
            self.failed = self.failed or "the device is closed"
            self._medium.close()

    def must_work(self) -> None:
        """Raise TransientError after a failure."""
        if self.failed:
            raise TransientError("the nof device cannot be used", self.failed, "it is opened anew")

    def _fail(self, why: str) -> ReconcileError:
        self.failed = why
        return TransientError("the nof device cannot be used", why, "it is opened anew by itself")

    @contextmanager
    def guard(self, *, started: bool = False) -> Iterator[None]:
        """Translate OSError; after one the device is failed.  `started`: a frame may be durable."""
        try:
            yield
        except OSError as error:
            failure = self._fail(f"{error.strerror or error} (errno {error.errno})")
            if started:
                raise UnknownOutcomeError(failure.what, failure.why, failure.todo) from error
            raise failure from error
