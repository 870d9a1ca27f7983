"""The one table of parsers that meet foreign bytes; each row is a target of the fuzzing."""

from tests.fuzz import on_edges, on_manifest, on_mooncake, on_names, on_rows, on_store, on_tiers
from tests.fuzz.target import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for module in (on_names, on_manifest, on_store, on_rows, on_tiers, on_mooncake, on_edges)
    for target in module.TARGETS
}
