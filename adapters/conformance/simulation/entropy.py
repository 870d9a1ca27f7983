"""Chance from a seed, the only one that there is in a simulation."""

import random


class Chance(random.Random):
    """Draws for scripts and latencies; and `ports.Entropy` for a simulated process."""

    def token(self, size_bytes: int) -> str:
        """As the port."""
        return self.randbytes(size_bytes).hex()
