"""One request of the kernel, done on a `Disk`.

Nothing is cached by the kernel beyond the pages of files, so what a fault did or did not do is seen
at once.  Raises OSError with the errno of the answer.
"""

import errno
import stat
from collections.abc import Callable

from tests.support.fuse import wire
from tests.support.fuse.disk import BLOCK_BYTES, CAPACITY_BYTES, Disk, Node, refuse
from tests.support.fuse.wire import Op, Request

_SECOND_NS = 10**9
_NAME_BYTES_MAX = 255


class Files:
    """The open files and the calls on them."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._listings: dict[int, list[tuple[str, int, int]]] = {}
        self._handles = 0
        self._calls: dict[int, Callable[[Request], bytes]] = {
            Op.INIT: lambda request: wire.welcome(request.body),
            Op.DESTROY: lambda _: b"",
            Op.FLUSH: lambda _: b"",
            Op.LOOKUP: self._lookup,
            Op.GETATTR: lambda request: _attributes(disk.nodes[request.node]),
            Op.SETATTR: self._set,
            Op.MKNOD: self._make_node,
            Op.MKDIR: self._make_folder,
            Op.UNLINK: self._unlink,
            Op.RMDIR: self._unlink,
            Op.RENAME: self._rename,
            Op.RENAME2: self._rename,
            Op.LINK: self._link,
            Op.OPEN: lambda request: self._open(disk.nodes[request.node]),
            Op.READ: self._read,
            Op.WRITE: self._write,
            Op.STATFS: lambda _: self._room(),
            Op.RELEASE: self._release,
            Op.FSYNC: self._sync,
            Op.FSYNCDIR: self._sync,
            Op.OPENDIR: self._open_folder,
            Op.READDIR: self._list,
            Op.RELEASEDIR: self._release_folder,
            Op.CREATE: self._create,
            Op.FALLOCATE: self._allocate,
        }

    def do(self, request: Request) -> bytes:
        """The answer's body."""
        call = self._calls.get(request.op)
        if call is None:
            raise refuse(errno.ENOSYS)
        return call(request)

    def write_half(self, request: Request) -> bytes:
        """A write that stops half way, at a whole sector where there is one."""
        _, offset, size, *_ = wire.WRITE_IN.unpack_from(request.body)
        half = size // 2 // 512 * 512 or size // 2
        content = bytes(request.body[wire.WRITE_IN.size :][:half])
        if content:
            self._disk.write(request.node, offset, content)
        return wire.WRITE_OUT.pack(len(content), 0)

    # --- names ---

    def _lookup(self, request: Request) -> bytes:
        (name,) = request.names(0)
        if len(name.encode("utf-8", "surrogateescape")) > _NAME_BYTES_MAX:
            raise refuse(errno.ENAMETOOLONG)
        return _entry(self._disk.lookup(request.node, name))

    def _make_node(self, request: Request) -> bytes:
        mode, *_ = wire.MKNOD_IN.unpack_from(request.body)
        (name,) = request.names(wire.MKNOD_IN.size)
        return _entry(self._disk.make(request.node, name, mode))

    def _make_folder(self, request: Request) -> bytes:
        mode, _ = wire.MKDIR_IN.unpack_from(request.body)
        (name,) = request.names(wire.MKDIR_IN.size)
        return _entry(self._disk.make(request.node, name, stat.S_IFDIR | mode))

    def _create(self, request: Request) -> bytes:
        _, mode, *_ = wire.CREATE_IN.unpack_from(request.body)
        (name,) = request.names(wire.CREATE_IN.size)
        node = self._disk.make(request.node, name, mode)
        return _entry(node) + self._open(node)

    def _unlink(self, request: Request) -> bytes:
        (name,) = request.names(0)
        self._disk.unlink(request.node, name)
        return b""

    def _link(self, request: Request) -> bytes:
        (number,) = wire.U64.unpack_from(request.body)
        (name,) = request.names(wire.U64.size)
        return _entry(self._disk.link(request.node, name, number))

    def _rename(self, request: Request) -> bytes:
        if request.op == Op.RENAME2:
            new_folder, flags, _ = wire.RENAME2_IN.unpack_from(request.body)
            name, new_name = request.names(wire.RENAME2_IN.size)
            if flags:
                raise refuse(errno.EINVAL)
        else:
            (new_folder,) = wire.U64.unpack_from(request.body)
            name, new_name = request.names(wire.U64.size)
        self._disk.rename(request.node, name, new_folder, new_name)
        return b""

    def _open_folder(self, request: Request) -> bytes:
        self._handles += 1
        nodes = self._disk.nodes
        entries = nodes[request.node].entries.items()
        self._listings[self._handles] = [(name, n, nodes[n].mode) for name, n in entries]
        return wire.OPEN_OUT.pack(self._handles, 0, 0)

    def _list(self, request: Request) -> bytes:
        handle, offset, size, *_ = wire.READ_IN.unpack_from(request.body)
        return wire.dirents(self._listings[handle], offset, size)

    def _release_folder(self, request: Request) -> bytes:
        (handle,) = wire.U64.unpack_from(request.body)
        del self._listings[handle]
        return b""

    # --- files ---

    def _open(self, node: Node) -> bytes:
        node.opened += 1
        return wire.OPEN_OUT.pack(0, wire.KEEP_CACHE, 0)

    def _release(self, request: Request) -> bytes:
        node = self._disk.nodes[request.node]
        node.opened -= 1
        self._disk.forget(node)
        return b""

    def _read(self, request: Request) -> bytes:
        _, offset, size, *_ = wire.READ_IN.unpack_from(request.body)
        return bytes(self._disk.nodes[request.node].data[offset : offset + size])

    def _write(self, request: Request) -> bytes:
        _, offset, size, *_ = wire.WRITE_IN.unpack_from(request.body)
        content = bytes(request.body[wire.WRITE_IN.size :][:size])
        self._disk.write(request.node, offset, content)
        return wire.WRITE_OUT.pack(size, 0)

    def _sync(self, request: Request) -> bytes:
        self._disk.sync(request.node)
        return b""

    def _allocate(self, request: Request) -> bytes:
        _, offset, length, mode, _ = wire.FALLOCATE_IN.unpack_from(request.body)
        if mode:
            raise refuse(errno.EOPNOTSUPP)
        if offset + length > len(self._disk.nodes[request.node].data):
            self._disk.resize(request.node, offset + length)
        return b""

    def _set(self, request: Request) -> bytes:
        node = self._disk.nodes[request.node]
        values = wire.SETATTR_IN.unpack_from(request.body)
        valid, size, mode, uid, gid = values[0], values[3], values[11], values[13], values[14]
        if valid & wire.SET_MODE:
            node.mode = stat.S_IFMT(node.mode) | stat.S_IMODE(mode)
        if valid & wire.SET_UID:
            node.owner = (uid, node.owner[1])
        if valid & wire.SET_GID:
            node.owner = (node.owner[0], gid)
        if valid & wire.SET_SIZE and size != len(node.data):
            self._disk.resize(request.node, size)
        return _attributes(node)

    def _room(self) -> bytes:
        used = sum(-(-len(node.data) // BLOCK_BYTES) for node in self._disk.nodes.values())
        blocks = CAPACITY_BYTES // BLOCK_BYTES
        free = blocks - used
        return wire.STATFS_OUT.pack(
            blocks, free, free, 1 << 20, 1 << 20, BLOCK_BYTES, _NAME_BYTES_MAX, BLOCK_BYTES
        )


def _attr(node: Node) -> bytes:
    seconds, nanoseconds = divmod(node.changed_ns, _SECOND_NS)
    size = len(node.data)
    times = (seconds,) * 3 + (nanoseconds,) * 3
    uid, gid = node.owner
    return wire.ATTR.pack(
        node.number, size, -(-size // 512), *times, node.mode, node.links, uid, gid, 0, 4096, 0
    )


def _attributes(node: Node) -> bytes:
    return wire.ATTR_OUT.pack(0, 0, 0) + _attr(node)


def _entry(node: Node) -> bytes:
    return wire.ENTRY.pack(node.number, 0, 0, 0, 0, 0) + _attr(node)
