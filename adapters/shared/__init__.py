"""What the tiers share.  Layer: adapters, below every tier, above the ports."""
