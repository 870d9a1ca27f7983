"""The wheel's own client, in worker processes: what it does, and what its codes mean."""
