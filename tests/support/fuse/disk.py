"""A file system in memory that keeps the order of what was done to it.

Each change is a `Change` in the log: what a power loss may drop or keep is decided from that log
alone (tests/faults/disks/survival.py).  Times are a count of changes, so that runs repeat.  Raises
OSError with the errno that a kernel file system gives.
"""

import errno
import os
import stat
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

ROOT = 1
BLOCK_BYTES = 4096
CAPACITY_BYTES = 1 << 30
_TICK_NS = 1_000_000
_BEGIN_NS = 1_700_000_000 * 10**9


class Kind(Enum):
    """What a change did."""

    ADD = "add"
    """(folder, name, node, whether it is a folder): a name for a node, new or not."""
    REMOVE = "remove"
    """(folder, name)."""
    MOVE = "move"
    """(folder, name, new folder, new name)."""
    WRITE = "write"
    """(node, offset, bytes)."""
    SIZE = "size"
    """(node, bytes)."""
    SYNC = "sync"
    """(node,): everything of it so far is on the medium."""
    LOST = "lost"
    """(node,): its bytes that were not synchronised will never be, though reads still give them."""
    MARK = "mark"
    """(value,): what the test knew at that moment."""


Change = tuple[Any, ...]
"""A Kind and its values."""


@dataclass(slots=True)
class Node:
    """A file or folder."""

    number: int
    mode: int
    data: bytearray = field(default_factory=bytearray)
    entries: dict[str, int] = field(default_factory=dict)
    links: int = 1
    opened: int = 0
    changed_ns: int = _BEGIN_NS
    owner: tuple[int, int] = (0, 0)

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)


def refuse(number: int) -> OSError:
    """The error that a system call gets."""
    return OSError(number, os.strerror(number))


class Disk:
    """The whole file system; node 1 is the root."""

    def __init__(self) -> None:
        self.nodes = {ROOT: Node(ROOT, stat.S_IFDIR | 0o755, links=2)}
        self.log: list[Change] = []
        self._count = ROOT
        self._ticks = 0

    # --- folders ---

    def lookup(self, folder: int, name: str) -> Node:
        number = self.nodes[folder].entries.get(name)
        if number is None:
            raise refuse(errno.ENOENT)
        return self.nodes[number]

    def make(self, folder: int, name: str, mode: int) -> Node:
        """A new file or folder."""
        if name in self.nodes[folder].entries:
            raise refuse(errno.EEXIST)
        self._count += 1
        node = Node(self._count, mode, links=2 if stat.S_ISDIR(mode) else 1)
        self.nodes[node.number] = node
        self._add(folder, name, node)
        return node

    def link(self, folder: int, name: str, number: int) -> Node:
        """One more name of a file."""
        if name in self.nodes[folder].entries:
            raise refuse(errno.EEXIST)
        node = self.nodes[number]
        node.links += 1
        self._add(folder, name, node)
        return node

    def _add(self, folder: int, name: str, node: Node) -> None:
        self.nodes[folder].entries[name] = node.number
        self._changed(self.nodes[folder], node)
        self.log.append((Kind.ADD, folder, name, node.number, node.is_folder))

    def unlink(self, folder: int, name: str) -> None:
        node = self.lookup(folder, name)
        if node.entries:
            raise refuse(errno.ENOTEMPTY)
        del self.nodes[folder].entries[name]
        node.links -= 2 if node.is_folder else 1
        self._changed(self.nodes[folder], node)
        self.log.append((Kind.REMOVE, folder, name))
        self.forget(node)

    def rename(self, folder: int, name: str, new_folder: int, new_name: str) -> None:
        node = self.lookup(folder, name)
        replaced = self.nodes[new_folder].entries.get(new_name)
        if replaced == node.number:
            return
        del self.nodes[folder].entries[name]
        self.nodes[new_folder].entries[new_name] = node.number
        self._changed(self.nodes[folder], self.nodes[new_folder], node)
        self.log.append((Kind.MOVE, folder, name, new_folder, new_name))
        if replaced is not None:
            self.nodes[replaced].links -= 1
            self.forget(self.nodes[replaced])

    def forget(self, node: Node) -> None:
        """Free what nobody can reach any more."""
        if node.links <= 0 and not node.opened:
            node.data = bytearray()

    # --- files ---

    def write(self, number: int, offset: int, content: bytes) -> None:
        node = self.nodes[number]
        if offset > len(node.data):
            node.data += bytes(offset - len(node.data))
        node.data[offset : offset + len(content)] = content
        self._changed(node)
        self.log.append((Kind.WRITE, number, offset, content))

    def resize(self, number: int, size_bytes: int) -> None:
        node = self.nodes[number]
        if size_bytes < len(node.data):
            del node.data[size_bytes:]
        else:
            node.data += bytes(size_bytes - len(node.data))
        self._changed(node)
        self.log.append((Kind.SIZE, number, size_bytes))

    def sync(self, number: int) -> None:
        self.log.append((Kind.SYNC, number))

    def lose(self, number: int) -> None:
        """A write back failed: the pages count as clean, and were not written."""
        self.log.append((Kind.LOST, number))

    def mark(self, value: object) -> None:
        self.log.append((Kind.MARK, value))

    def _changed(self, *nodes: Node) -> None:
        self._ticks += 1
        for node in nodes:
            node.changed_ns = _BEGIN_NS + self._ticks * _TICK_NS
