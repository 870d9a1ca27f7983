"""Changing known inputs by chance, without a guide: what the default tests do, and what is left
where no guide is installed.
"""

from collections.abc import Iterator
from random import Random

from tests.fuzz.changing import changed, crossed
from tests.fuzz.corpus import kept
from tests.fuzz.target import Target

POOL_MAX = 400


class Plain:
    """An endless supply of changed inputs for a target, the same for the same seed."""

    def __init__(self, target: Target, seed: int) -> None:
        self._target = target
        self._chance = Random(f"{seed} {target.name}")
        self._pool = [*target.seeds(), *kept(target)]

    def inputs(self) -> Iterator[bytes]:
        """Changed inputs; tell `accepted` of those that the target took."""
        chance = self._chance
        while True:
            raw = chance.choice(self._pool)
            if chance.random() < 0.1:
                raw = crossed(chance, raw, chance.choice(self._pool))
            raw = changed(chance, raw, self._target.form, self._target.words)
            yield raw[: self._target.bytes_max]

    def accepted(self, raw: bytes) -> None:
        """Change this one too from now on, in the place of another one when there are many."""
        if len(self._pool) < POOL_MAX:
            self._pool.append(raw)
        else:
            self._pool[self._chance.randrange(POOL_MAX)] = raw
