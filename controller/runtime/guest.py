"""A plugin's code, and what it did that none may do.  Layer: runtime.

Every piece of foreign code is run from here: turn by turn where it waits, and known by its owner
while it does not.  Whatever it raises leaves as an error of weightctl, and whoever had to be
interrupted is left alone for a while, so that it cannot hold up the loop again and again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeVar

from weightctl.controller.core.backoff import Backoff
from weightctl.controller.errors import (
    InvariantViolationError,
    ThrottledError,
    TransientError,
    UnknownOutcomeError,
    WeightctlError,
)
from weightctl.controller.runtime.answers import BadAnswerError, bounded, shown
from weightctl.controller.runtime.holding import HeldUpError, Owner, running
from weightctl.controller.runtime.interrupts import is_ctrl_c
from weightctl.controller.runtime.turns import (
    OverdueError,
    SelfCancelledError,
    SelfEndedError,
    Turns,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weightctl.controller.core.tiers import TierProfile
    from weightctl.controller.ports import Clock

T = TypeVar("T")

LIMIT_S = 3600.0
"""For a call that nobody could cancel; callers have deadlines of their own."""
LOOK_LIMIT_S = 60.0
"""The same for a call that every pass waits for."""
_LOOKS = ("observe", "inventory", "capacity", "report")
HELD_S = 1.0
"""A turn that holds the loop for longer is complained of."""
ALONE = Backoff(base_s=60.0, max_s=3600.0, jitter=0.0)
"""How long a plugin is left alone after each time that it had to be interrupted."""
_log = logging.getLogger(__name__)


class Guest:
    """The plugin behind one tier."""

    def __init__(self, profile: TierProfile, clock: Clock, owner: Owner) -> None:
        self.complaint = ""
        """What it did last that no tier may do; empty when there is nothing."""
        self._profile = profile
        self._clock = clock
        self._owner = owner
        self._told: dict[str, str] = {}
        self._offences = 0
        self._alone_until_s = float("-inf")

    # --- running it -------------------------------------------------------------------------------

    async def driven(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        """Its answer, of whatever type.  Raises weightctl's errors only."""
        try:
            return await Turns(
                call,
                owner=self._owner,
                clock=self._clock,
                limit_s=LOOK_LIMIT_S if name in _LOOKS else LIMIT_S,
                held=lambda seconds: self._held(name, seconds),
                left=lambda: self.complain(name, "it goes on although it was cancelled"),
            )
        except InvariantViolationError as error:  # ours would end the process; this is the plugin's
            raise self.error(name, shown(error)) from error
        except WeightctlError as error:
            raise bounded(error) from error.__cause__
        except OverdueError as error:
            raise self.unknown(name, "no end, and it cannot be cancelled") from error
        except SelfCancelledError as error:
            raise self.unknown(name, "it cancelled itself") from error
        except SelfEndedError as error:
            raise self.unknown(name, f"it raised {error}") from error
        except BadAnswerError as error:
            raise self.unknown(name, str(error)) from None
        except HeldUpError as error:
            raise self.unknown(name, f"it had to be interrupted at {error}") from error
        except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # even SystemExit is only this tier's fault
            raise self.unknown(name, f"untranslated {shown(error)}") from error
        finally:
            self._punish(name)

    def asked(self, name: str, call: Callable[[], T]) -> T:
        """What a piece of it that never waits gives, or raises.

        TransientError where it had to be interrupted, or raised what is no Exception.
        """
        try:
            with running(self._owner):
                return call()
        except HeldUpError as error:
            raise self.error(name, f"it had to be interrupted at {error}") from error
        except Exception:
            raise
        except BaseException as error:  # an end of the process is only this tier's fault
            if is_ctrl_c(error):
                raise
            raise self.error(name, f"it raised {shown(error)}") from error
        finally:
            self._punish(name)

    def right(self, name: str, made: Callable[[], T]) -> T:
        """What was made of its answer.  Raises UnknownOutcomeError for what is no answer."""
        try:
            return self.asked(name, made)
        except BadAnswerError as error:
            raise self.unknown(name, str(error)) from None
        except WeightctlError as error:
            raise bounded(error) from error.__cause__
        except Exception as error:  # what a class of its own did while it was looked at
            raise self.unknown(name, shown(error)) from error

    def admit(self, name: str) -> None:
        """Raises ThrottledError while it is left alone."""
        self._punish(name)
        alone_s = self._alone_until_s - self._clock.monotonic_s()
        if alone_s > 0:
            raise ThrottledError(
                alone_s,
                f"{name} of tier {self._profile.name}",
                f"{ThrottledError.reason}: for another {alone_s:.0f} s: {self.complaint}",
                "tell the author of its plugin",
            )

    # --- what it did ------------------------------------------------------------------------------

    def error(self, name: str, why: str) -> TransientError:
        """Complain; the error to raise where nothing can have happened."""
        self.complain(name, why)
        return TransientError(
            f"{name} of tier {self._profile.name}",
            f"{TransientError.reason}: {why}",
            "tell the author of its plugin; `weightctl adapter check` shows it",
        )

    def unknown(self, name: str, why: str) -> UnknownOutcomeError:
        """Complain; the error to raise where anything may have happened."""
        self.complain(name, why)
        return UnknownOutcomeError(
            f"{name} of tier {self._profile.name}",
            f"{UnknownOutcomeError.reason}: {why}",
            "tell the author of its plugin; `weightctl adapter check` shows it",
        )

    def complain(self, name: str, why: str) -> None:
        """Keep it for people, and log it unless it was just logged."""
        self.complaint = f"{name}: {why}"
        if self._told.get(name) != why.partition(" for ")[0]:  # not once more every second
            self._told[name] = why.partition(" for ")[0]
            kind = self._profile.kind
            _log.error("tier %s (plugin %s): %s", self._profile.name, kind, self.complaint)

    def _held(self, name: str, seconds: float) -> None:
        if seconds > HELD_S:
            self.complain(name, f"it held up the event loop for {seconds:.1f} s")

    def _punish(self, name: str) -> None:
        """Leave it alone when it had to be interrupted, also where it swallowed that."""
        places = self._owner.places
        if not places:
            return
        place = places[-1]
        places.clear()
        now_s = self._clock.monotonic_s()
        if now_s - self._alone_until_s > ALONE.max_s:
            self._offences = 0
        self._offences += 1
        alone_s = ALONE.delay_s(self._offences, 0.0)
        self._alone_until_s = now_s + alone_s
        why = f"it held up the event loop until it was interrupted at {place}; left alone"
        self.complain(name, f"{why} for {alone_s:.0f} s")
