"""Which copies count, and how they are read back without keeping a drop waiting."""
