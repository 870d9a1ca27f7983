"""How replicas are called in the bucket, below the tier's prefix.  Pure.

    weightctl-tier.json                        the marker (medium.py)
    replicas/GROUP/KEY/INSTANCE                one replica: exactly its bytes
    replicas/GROUP/KEY/INSTANCE.quarantined    empty: the replica beside it is out of sight
    names/SHA256                               a text that is too long to be part of a name

INSTANCE is the content's sha256, a dot and a random token.  So one listing answers for a group:
keys, sizes, digests and instance ids; and no name is ever used for two stored copies, which is why
nothing is ever overwritten, and why a drop that arrives late cannot meet a newer copy.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

from weightctl.controller.core.identity import text_bytes
from weightctl.controller.core.observation import Member

REPLICAS = "replicas"
QUARANTINED = ".quarantined"
PART_BYTES_MAX = 350
"""Of a group or key within a name: both, an instance and the prefix stay below 1,024 bytes."""
TOKEN_BYTES = 8
_NAME = re.compile(
    rf"{REPLICAS}/(?P<group>[^/]+)/(?P<key>[^/]+)/"
    rf"(?P<instance>[0-9a-f]{{64}}\.[0-9a-f]{{{2 * TOKEN_BYTES}}})"
    rf"(?P<flag>{re.escape(QUARANTINED)})?"
)
_LONG = "~"

Place = tuple[str, str]
"""An encoded group and key: where a member's replicas lie."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One stored copy, as a listing shows it."""

    instance_id: str
    size_bytes: int
    hidden: bool

    @property
    def sha256(self) -> bytes:
        """What the content's digest was when it was stored."""
        return bytes.fromhex(self.instance_id[:64])


def encode(text: str) -> str:
    """A group id or key as one part of a name; what does not fit or is no part is a digest."""
    part = quote(raw := text_bytes(text), safe="").replace("~", "%7E").replace("%", "=")
    if part.strip(".") and len(part) <= PART_BYTES_MAX:
        return part
    return _LONG + hashlib.sha256(raw).hexdigest()


def decode(part: str) -> str | None:
    """The text of a part; None for a digest, whose text is in the object `name_of_text`."""
    if part.startswith(_LONG):
        return None
    return text_of(unquote_to_bytes(part.replace("=", "%")))


def text_of(raw: bytes) -> str:
    """The inverse of `text_bytes`."""
    return raw.decode("utf-8", "surrogateescape")


def name_of_text(part: str) -> str:
    """Where the text of a digest is kept."""
    return f"names/{part.removeprefix(_LONG)}"


def new_instance(sha256: bytes, token: str) -> str:
    """The id of a copy that is about to be stored."""
    return f"{sha256.hex()}.{token}"


def name_of(group: str, key: str, instance_id: str) -> str:
    """Where a copy lies; group and key are encoded."""
    return f"{REPLICAS}/{group}/{key}/{instance_id}"


def folder_of(group: str | None) -> str:
    """What to list for a group, or for all of them."""
    return REPLICAS if group is None else f"{REPLICAS}/{group}"


def place_of(member: Member) -> Place:
    """Where a member's replicas lie."""
    return encode(member.group_id), encode(member.key)


class Listing:
    """The copies in some listed names, by encoded group and key."""

    def __init__(self) -> None:
        self.sizes: dict[tuple[str, str], dict[str, int]] = {}
        self.flags: dict[tuple[str, str], set[str]] = {}

    def add(self, page: Iterable[tuple[str, int]]) -> None:
        """Take in names with their sizes; an object that is not the tier's is left alone."""
        for name, size_bytes in page:
            found = _NAME.fullmatch(name)
            if found is None:
                continue
            place, instance_id = (found["group"], found["key"]), found["instance"]
            if found["flag"]:
                self.flags.setdefault(place, set()).add(instance_id)
            else:
                self.sizes.setdefault(place, {})[instance_id] = size_bytes

    def update(self, other: "Listing") -> None:
        """Take in what another listing has."""
        self.sizes.update(other.sizes)
        self.flags.update(other.flags)

    def named(self, place: Place, instance_id: str) -> Replica | None:
        """The copy of that id, in sight or not."""
        return next((it for it in self.at(place) if it.instance_id == instance_id), None)

    def places(self) -> Iterable[Place]:
        """Every encoded group and key under which a copy lies."""
        return self.sizes

    def at(self, place: Place) -> Sequence[Replica]:
        """The copies of one group and key."""
        flags = self.flags.get(place, ())
        return [
            Replica(instance_id, size_bytes, instance_id in flags)
            for instance_id, size_bytes in self.sizes.get(place, {}).items()
        ]

    def seen(self, place: Place, sha256: bytes) -> Replica | None:
        """The copy that stands for a member: of those in sight one with its content, if any."""
        return min(
            (replica for replica in self.at(place) if not replica.hidden),
            key=lambda replica: (replica.sha256 != sha256, replica.instance_id),
            default=None,
        )

    def used_bytes(self) -> int:
        """Of all copies, quarantined ones too."""
        return sum(sum(sizes.values()) for sizes in self.sizes.values())
