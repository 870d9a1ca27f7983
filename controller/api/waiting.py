"""`--wait`: until what was started has been observed to be done.  Layer: api.

Progress and changed reasons are passed on; a loss ends the waiting at once, because it will not
pass by itself.  Ending the waiting never ends the operation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from weightctl.controller.core.losses import named
from weightctl.controller.core.records import COMPLETED, Availability
from weightctl.controller.errors import (
    NothingReadableError,
    StoppingError,
    WeightctlError,
    WeightError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weightctl.controller.api.app import App
    from weightctl.controller.core.identity import Identity

    Emit = Callable[[Mapping[str, Any]], None]

LOOK_S = 0.2
"""Conditions are looked at this often; a change of the records is seen at once."""


class WaitTimeoutError(WeightctlError):
    """The time for waiting is over."""

    reason = "Timeout"


class LostError(WeightctlError):
    """A member has no readable replica in any tier."""

    reason = NothingReadableError.reason


WAY_OUT = (
    "bring its bytes back into any tier (`weightctl tiers` shows their health), or import the"
    " weights under a new weight generation"
)


def not_started(verb: str, identity: Identity, keys: tuple[str, ...]) -> LostError:
    """The refusal of an operation that could never end."""
    return LostError(
        f"{verb} of {identity} was not started",
        f"{LostError.reason}: no tier has a readable replica of {named(keys)}, so it could not"
        " end, and until then nothing else could be done with the revision",
        WAY_OUT,
    )


def not_readable(verb: str, identity: Identity, keys: tuple[str, ...]) -> LostError:
    """The refusal of a verb that reads what is not there."""
    return LostError(
        f"{verb} of {identity} was not begun",
        f"{LostError.reason}: no tier has a readable replica of {named(keys)}",
        WAY_OUT,
    )


def loss(keys: tuple[str, ...]) -> str:
    """What a plan warns of: the members that are lost, and what a person can do."""
    return f"{len(keys)} lost: no tier has a readable replica of {named(keys)}; {WAY_OUT}"


class EndlessError(WeightError):
    """BUSY because of an operation that waits for what is lost."""


def can_not_end(refusal: WeightError, lost: str) -> EndlessError:
    """The refusal, with what the operation waits for: `lost` says what that is."""
    return EndlessError(
        refusal.code,
        refusal.what,
        f"{refusal.why} and cannot end: {lost}",
        f"{WAY_OUT}; the operation then ends by itself",
    )


async def wait_for(
    app: App,
    verb: str,
    identity: Identity,
    *,
    operation_id: int,
    timeout_s: float | None,
    emit: Emit,
) -> None:
    """Wait for an operation, or with `operation_id` 0 for the tombstone.

    Raises WaitTimeoutError, LostError, StoppingError.
    """
    look = _Look(app, verb, identity, operation_id=operation_id, emit=emit)
    unsubscribe = app.store.subscribe(look.on_change)
    try:
        with anyio.move_on_after(timeout_s) as scope:
            while not await look.done():
                look.report()
                with anyio.move_on_after(LOOK_S):
                    await look.changed.wait()
                look.changed = anyio.Event()
    finally:
        unsubscribe()
    if scope.cancelled_caught:
        raise WaitTimeoutError(
            f"{verb} of {identity} is not done after {timeout_s:g} s",
            look.said or f"{WaitTimeoutError.reason}: it is still under way",
            "it goes on; `weightctl explain` says what it waits for",
        )


class _Look:
    """What the waiting sees."""

    def __init__(
        self, app: App, verb: str, identity: Identity, *, operation_id: int, emit: Emit
    ) -> None:
        self._app = app
        self._verb = verb
        self._identity = identity
        self._operation_id = operation_id
        self._emit = emit
        self.changed = anyio.Event()
        self.said = ""
        """The reason that holds it now, and was passed on."""

    def on_change(self, identity: Identity) -> None:
        """The store published something."""
        if identity == self._identity:
            self.changed.set()

    async def done(self) -> bool:
        """Whether the operation is completed, or the tombstone is there."""
        if self._operation_id:
            operation = await self._app.store.query_operation(
                operation_id=self._operation_id, tenant_id=self._identity.tenant_id
            )
            return operation.message == COMPLETED
        view = await self._app.store.get(identity=self._identity)
        return view.metadata.availability is Availability.DELETED

    def report(self) -> None:
        """Pass on progress and the reason for waiting.  Raises LostError, StoppingError."""
        if self._app.loop().ended:
            raise StoppingError(
                f"{self._verb} of {self._identity} is not done",
                f"{StoppingError.reason}: the controller is stopping",
                "the operation is recorded and goes on with the next start",
            )
        self._report_conditions()
        operation = self._app.store.operation(identity=self._identity)
        if operation is not None:
            self._emit(
                {
                    "progress": {
                        "stage": self._verb,
                        "done": operation.processed_members,
                        "total": operation.total_members,
                        "unit": "members",
                        "waits": self.said,
                    }
                }
            )

    def _report_conditions(self) -> None:
        held = False
        for condition in self._app.loop().conditions(self._identity):
            if not condition.status:
                continue
            text = condition.message or condition.reason
            if condition.type == "Lost":
                raise LostError(
                    f"{self._verb} of {self._identity} cannot be finished",
                    text,
                    f"{WAY_OUT}; it goes on by itself: looked at again soon after a tier came back"
                    " anew, else ever more seldom, and at once when the verb is repeated",
                )
            if condition.type in {"Blocked", "Failing"}:
                held = True
                if text != self.said:
                    self.said = text
                    self._emit({"note": f"{self._verb} of {self._identity} waits: {text}"})
        if not held:
            self.said = ""
