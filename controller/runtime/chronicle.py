"""Tells the log what becomes of each revision: one line an event.  Layer: runtime, memory only.

An operation (also an import or a deletion) is told when it starts and when it ends, by what the
store has published, so it is told whoever started it.  Idle revisions are not remembered.
"""

import logging

from weightctl.controller.core.identity import Identity
from weightctl.controller.core.records import Availability, Operation, RevisionMetadata
from weightctl.controller.store.store import WeightMetadataStore
from weightctl.controller.telemetry.logs import event

_LOG = logging.getLogger("weightctl.runtime")
_OPEN = (Availability.IMPORTING, Availability.DELETING)


class Chronicle:
    """What every revision with unfinished work is at."""

    def __init__(self, store: WeightMetadataStore) -> None:
        self._store = store
        self._at: dict[Identity, str] = {}

    def begin(self) -> None:
        """Tell what the last holder of the store has left unfinished."""
        for record in self._store.records():
            if at := _work(record):
                self._at[record.identity] = at
                event(_LOG, logging.INFO, "goes on", revision=record.identity, work=at)

    def note(self, identity: Identity) -> None:
        """The store has published something of this revision."""
        record = self._store.record(identity=identity)
        before, now = self._at.get(identity, ""), "" if record is None else _work(record)
        if before == now:
            return
        if before:
            del self._at[identity]
            state = "erased" if record is None else record.availability.name
            where = "" if record is None else record.residency.name
            event(
                _LOG, logging.INFO, "ended", revision=identity, work=before, now=f"{state}/{where}"
            )
        if now:
            self._at[identity] = now
            event(_LOG, logging.INFO, "started", revision=identity, work=now)


def _work(record: RevisionMetadata) -> str:
    """What is under way, with the number of an operation; empty for a revision at rest."""
    if record.operation is not Operation.NONE:
        return f"{record.operation.name}:{record.operation_id}"
    return record.availability.name if record.availability in _OPEN else ""
