"""The kit for plugin authors: a reference tier to read and compare with.  Layer: above tiers."""
