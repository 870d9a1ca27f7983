"""Every kind of fault that the lab promises, in plain words, and what it is made of.

A part is an incident (`call:kind`, with `*` for any call) or an action of the world or its users.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from weightctl.adapters.conformance.simulation.script import EVERY_FAULT

KINDS: Mapping[str, tuple[str, ...]] = {
    "request lost": ("*:lose_request",),
    "done, but the answer lost": ("*:lose_answer", "*:fail_after"),
    "carried out twice": ("*:double",),
    "answer late": ("*:delay", "*:late"),
    "answers reordered": ("*:shuffle",),
    "part of a batch missing": ("*:part", "*:cut"),
    "one answer too many": ("*:surplus",),
    "every class of error": ("*:error",),
    "wrong epoch": ("observe:wrong_epoch",),
    "view some versions back": ("observe:stale",),
    "observation dropped": ("observe:unknown",),
    "success without an act": ("*:false_done",),
    "success, old content": ("store:old",),
    "torn write": ("store:torn",),
    "flipped bit on the way": ("store:flip", "read:flip"),
    "flipped bit at rest": ("store:rot", "rot"),
    "no space at the n-th byte": ("store:no_space",),
    "busy": ("*:busy",),
    "tier hangs": ("clog",),
    "tiers clogged one by one, released in any order": ("jam",),
    "tier vanishes": ("away",),
    "tier is empty": ("observe:empty", "inventory:empty", "capacity:empty"),
    "another tier's content": ("observe:foreign",),
    "replica lost": ("lose",),
    "replica cut short": ("cut",),
    "replica exchanged": ("swap",),
    "replica appears": ("appear",),
    "leftover": ("litter",),
    "tier forgets everything, new epoch": ("wipe", "power"),
    "tier forgets everything, same epoch": ("forget",),
    "tier keeps everything, new epoch": ("reborn",),
    "wall clock jumps": ("jump",),
    "wall clock stalls": ("stop",),
    "machine is suspended": ("skip",),
    "process killed before a call": ("*:kill_before",),
    "process killed after a call": ("*:kill_after",),
    "process killed at any time": ("kill",),
    "journal refuses": ("commit:refused", "fold:refused"),
    "commit uncertain and lost": ("commit:uncertain_lost", "fold:uncertain_lost"),
    "commit uncertain and kept": ("commit:uncertain_kept", "fold:uncertain_kept"),
    "journal slow": ("commit:slow", "rows:slow"),
    "journal unreadable": ("rows:unreadable",),
    "second controller that believes it leads": ("*:depose", "partition"),
    "reader takes and renews": ("lease", "renew", "reader"),
    "reader gives back": ("release", "reader gives back"),
    "reader leaks": ("reader leaks",),
    "reader loses": ("reader loses",),
    "user evicts, rehydrates, repairs, deletes": ("evict", "rehydrate", "repair", "delete"),
    "user asks for a plan": ("plan",),
    "operator pauses": ("pause",),
}


def incidents() -> set[str]:
    """`call:kind` of every incident that a script may draw."""
    return {f"{where.rpartition('.')[2]}:{kind}" for where, kind in EVERY_FAULT}


def table(fired: Counter[str], acted: Counter[str]) -> dict[str, int]:
    """How often each kind occurred; a kind of several parts as often as its rarest part."""
    happened = fired + acted
    return {name: min(_times(part, happened) for part in parts) for name, parts in KINDS.items()}


def _times(part: str, happened: Mapping[str, int]) -> int:
    return sum(times for name, times in happened.items() if fnmatchcase(name, part))


def unnamed(names: Iterable[str]) -> list[str]:
    """Incidents and actions that no kind of the table speaks of."""
    parts = [part for named in KINDS.values() for part in named]
    return sorted(name for name in names if not any(fnmatchcase(name, part) for part in parts))
