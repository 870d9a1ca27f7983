"""Configuration: one TOML file, then the environment, then flags; the later one wins.

Layer: config.  One table of settings (`settings`) drives the file, the environment, `--set`, the
reference in the README and `weightctl config show`.  Nothing heavy is imported: a command that only
asks reads its configuration too, and refuses what it does not know.
"""
