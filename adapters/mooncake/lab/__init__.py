"""A real Mooncake on this machine, for tests and demonstrations; no part of a controller."""
