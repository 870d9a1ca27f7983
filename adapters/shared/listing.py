"""What lies in one group's folder, from one listing.  Layer: adapters, shared; blocking.

A listing reads every name once, which for a large group is far cheaper than one call a member.
Only regular files with our names count; links and foreign files are not seen and so never touched.
`Hints` remembers a few listings for look-ups of single members.  Invariant: a hint only says where
to look first.  What it shows is confirmed by a system call and what it does not show is listed
again; ABSENT is only ever said from a fresh listing.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weightctl.adapters.shared.layout import parse_stored, text_and_suffix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weightctl.adapters.shared.layout import StoredName

HINT_NAMES_MAX = 200_000
"""Names that are remembered in all, about 250 bytes each."""


@dataclass(slots=True)
class GroupListing:
    """Names by encoded key.  Almost every key has one complete replica, so that is one text."""

    complete: dict[str, str] = field(default_factory=dict)
    others: dict[str, list[str]] = field(default_factory=dict)
    """Further complete replicas of a key, partial and quarantined ones."""
    changed_ns: int = -1
    """Change time of the folder that this listing shows."""
    counted: int = 0
    """Names when it was remembered, for the bound of `Hints`."""

    def add(self, name: StoredName) -> None:
        """Show a file."""
        if not name.suffix and name.text not in self.complete:
            self.complete[name.text] = str(name)
        else:
            self.others.setdefault(name.text, []).append(str(name))

    def discard(self, name: StoredName) -> None:
        """Show a file no more; another complete replica of the key takes its place."""
        if self.complete.get(name.text) == str(name):
            del self.complete[name.text]
            rest = [parsed for parsed in self.names(name.text) if not parsed.suffix]
            if rest:
                self._forget_other(rest[0])
                self.complete[name.text] = str(rest[0])
        else:
            self._forget_other(name)

    def names(self, text: str) -> list[StoredName]:
        """Every file of one encoded key, complete replicas first, in a fixed order."""
        first = self.complete.get(text)
        found = [*self.others.get(text, ()), *([first] if first else ())]
        parsed = [stored for name in found if (stored := parse_stored(name))]
        if len(parsed) > 1:
            parsed.sort(key=lambda stored: (stored.suffix, stored.instance_id))
        return parsed

    def every(self) -> Iterator[StoredName]:
        """All files."""
        for name in (*self.complete.values(), *(n for more in self.others.values() for n in more)):
            if stored := parse_stored(name):
                yield stored

    def _forget_other(self, name: StoredName) -> None:
        others = self.others.get(name.text, [])
        if str(name) in others:
            others.remove(str(name))
            if not others:
                del self.others[name.text]


def list_group(group_fd: int) -> GroupListing:
    """A fresh listing of the open folder.  Raises OSError."""
    listing = GroupListing(changed_ns=os.fstat(group_fd).st_mtime_ns)
    complete, others = listing.complete, listing.others
    with os.scandir(group_fd) as entries:
        for entry in entries:
            name = entry.name
            parts = text_and_suffix(name)
            if parts is None or not entry.is_file(follow_symlinks=False):
                continue
            text, suffix = parts
            if suffix or complete.setdefault(text, name) is not name:
                others.setdefault(text, []).append(name)
    return listing


class Hints:
    """The last listings, oldest use first out.  Not thread-safe: its owner locks."""

    def __init__(self) -> None:
        self._listings: OrderedDict[str, GroupListing] = OrderedDict()
        self._count = 0

    def get(self, group: str, group_fd: int) -> GroupListing:
        """The remembered listing while the folder has not changed since, else a fresh one."""
        listing = self._listings.get(group)
        if listing is None or listing.changed_ns != os.fstat(group_fd).st_mtime_ns:
            return self.put(group, list_group(group_fd))
        self._listings.move_to_end(group)
        return listing

    def peek(self, group: str) -> GroupListing | None:
        """The remembered listing, however old."""
        return self._listings.get(group)

    def change(
        self, group: str, group_fd: int, gone: StoredName | None, come: StoredName | None
    ) -> None:
        """Follow a change that we made ourselves, so that it costs no new listing."""
        listing = self._listings.get(group)
        if listing is None:
            return
        if gone is not None:
            listing.discard(gone)
        if come is not None:
            listing.add(come)
        try:
            listing.changed_ns = os.fstat(group_fd).st_mtime_ns
        except OSError:
            self.forget(group)  # it has happened, whatever a look at it says

    def put(self, group: str, listing: GroupListing) -> GroupListing:
        """Remember a fresh listing."""
        self.forget(group)
        self._listings[group] = listing
        listing.counted = len(listing.complete) + len(listing.others)
        self._count += listing.counted
        while self._count > HINT_NAMES_MAX and len(self._listings) > 1:
            _, dropped = self._listings.popitem(last=False)
            self._count -= dropped.counted
        return listing

    def forget(self, group: str) -> None:
        """Forget a group."""
        dropped = self._listings.pop(group, None)
        self._count -= dropped.counted if dropped is not None else 0
