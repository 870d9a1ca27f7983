"""The rolling-upgrade capability gate.  Layer: store, a configuration value.

With high availability and the etcd op-log, weight mutations stay refused until an operator asserts
that every standby understands op-log types 8 to 11.  Reads and no-ops are never gated.  A restore
of a snapshot is a mutation of everything and is gated like any other, after it was validated.
"""

from __future__ import annotations

from dataclasses import dataclass

from weightctl.controller.errors import ErrorCode, WeightError


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityGate:
    """Whether mutations are admitted; the default is one process with its own journal."""

    enable_ha: bool = False
    enable_oplog: bool = False
    backend: str = "none"
    weight_management_oplog_capability_confirmed: bool = False

    @property
    def oplog_enabled(self) -> bool:
        """Whether standbys replay the op-log."""
        return self.enable_ha and self.enable_oplog and self.backend == "etcd"

    @property
    def enabled(self) -> bool:
        """Whether mutations are admitted."""
        return not self.oplog_enabled or self.weight_management_oplog_capability_confirmed

    def admit(self, subject: object) -> None:
        """Raise DURABILITY_FAILED while the gate is closed; `subject` names what would change."""
        if not self.enabled:
            raise WeightError(
                ErrorCode.DURABILITY_FAILED,
                f"a change of {subject} was refused",
                "CapabilityUnconfirmed: standbys may not understand weight op-log entries",
                "upgrade every standby, then set ha.weight_management_oplog_capability_confirmed",
            )
