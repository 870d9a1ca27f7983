"""While one tier fails without an end the others finish the work.

The other histories are judged when their faults are over; here they never are.
"""

from collections.abc import Mapping

import pytest

from tests.sim.scenarios import _script
from weightctl.adapters.conformance.faults import Fault, Kind
from weightctl.adapters.conformance.simulation.script import Script
from weightctl.adapters.conformance.simulation.world import World
from weightctl.controller.core.records import Availability, Operation, Residency

_EVERY_CALL = 500
_FAULTS = {
    "it raises": Fault(kind=Kind.ERROR, amount=0.0),
    "it says that it never will": Fault(kind=Kind.ERROR, amount=5.0),
    "it is busy": Fault(kind=Kind.BUSY, amount=5.0),
    "it never answers": Fault(kind=Kind.LOSE_REQUEST),
}
_BOTH, _MEMORY = (0.0, "import", 0, 1.0), (0.0, "import", 0, 0.0)
_EVICT = (2.0, "evict", 0, 1.0)


def _always(place: str, fault: Fault) -> tuple[tuple[str, int, Fault], ...]:
    return tuple((place, number, fault) for number in range(_EVERY_CALL))


def _scripts(fault: Fault) -> Mapping[str, tuple[Script, Residency]]:
    """What the tier that comes first fails at, and where the operation leads."""
    return {
        "a copy cannot be read back": (
            _script(_BOTH, _EVICT, incidents=_always("disk.verify", fault), linger_s=900.0),
            Residency.COLD,
        ),
        "a tier takes nothing": (
            _script(_MEMORY, _EVICT, incidents=_always("disk.store", fault), linger_s=900.0),
            Residency.COLD,
        ),
        "a source gives nothing": (
            _script(
                _BOTH,
                (2.0, "repair", 0, 1.0),
                (30.0, "wipe", 0, 1.0),
                (40.0, "rehydrate", 0, 1.0),
                incidents=_always("disk.open", fault),
                cold_copies=2,
                linger_s=900.0,
            ),
            Residency.HOT,
        ),
    }


class Endless(World):
    """Tells how the revision stands before the faults are over."""

    stood: tuple[Availability, Residency, Operation] | None = None

    def note(self, text: str) -> None:
        if text == "the faults are over":
            (record,) = self.ledger.records.values()
            self.stood = record.availability, record.residency, record.operation
        super().note(text)


@pytest.mark.parametrize("name", _scripts(Fault(kind=Kind.ERROR)))
@pytest.mark.parametrize("fault", _FAULTS)
def test_an_operation_ends_although_one_tier_fails_for_ever(name: str, fault: str) -> None:
    script, residency = _scripts(_FAULTS[fault])[name]
    world = Endless(script)
    report = world.run()
    assert not report.oracle, report.detail
    assert world.stood == (Availability.READY, residency, Operation.NONE)
