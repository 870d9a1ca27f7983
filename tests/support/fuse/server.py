"""The process that serves a `Disk` to the kernel, and fails, delays or forgets on order.

    python -m tests.support.fuse.server FOLDER CONTROL_FD

One request after the other.  Orders come as pickled (name, arguments) over an inherited socket,
each with a length before it; when the socket closes, everything is unmounted and the process ends,
so nothing outlives its test.  A request that hangs is answered when it is let go, whatever signals
its caller got: as with a real file system whose server is gone.
"""

import os
import pickle
import select
import signal
import socket
import sys
from contextlib import suppress
from errno import ENOENT, ENOSYS
from pathlib import Path
from typing import Any

from tests.support.fuse import wire
from tests.support.fuse.disk import Disk
from tests.support.fuse.faults import Fault, How
from tests.support.fuse.serving import Files
from tests.support.fuse.wire import Op
from tests.support.mounts import unmount


class Server:
    """Answers of one mount."""

    def __init__(self, device: int) -> None:
        self.disk = Disk()
        self._files = Files(self.disk)
        self._device = device
        self._fault: Fault | None = None
        self._met: list[str] = []
        self._count = 0
        self._hung: list[bytes] = []

    # --- requests ---

    def serve(self, raw: bytes) -> None:
        request = wire.parse(memoryview(raw))
        if request.op in wire.UNANSWERED:
            return
        fault = self._fault_of(request)
        if fault is None:
            self._reply(request.unique, *self._done(request))
        elif fault.how is How.HUNG:
            self._hung.append(raw)
        else:
            self._reply(request.unique, *self._failed(request, fault))

    def _fault_of(self, request: wire.Request) -> Fault | None:
        fault = self._fault
        if fault is None or request.op not in fault.ops:
            return None
        self._count += 1
        number = self._count - 1
        if number < fault.at or (number > fault.at and not fault.lasting):
            return None
        self._met.append(Op(request.op).name.lower())
        return fault

    def _done(self, request: wire.Request) -> tuple[bytes, int]:
        try:
            return self._files.do(request), 0
        except OSError as error:
            return b"", error.errno or ENOSYS

    def _failed(self, request: wire.Request, fault: Fault) -> tuple[bytes, int]:
        if fault.how is How.LATE:
            _, error = self._done(request)
            return b"", error or fault.error
        if fault.how in {How.SHORT, How.TORN} and request.op == Op.WRITE:
            body = self._files.write_half(request)
            return (body, 0) if fault.how is How.SHORT else (b"", fault.error)
        if fault.how is How.LOST and request.op in {Op.FSYNC, Op.FSYNCDIR}:
            self.disk.lose(request.node)
        return b"", fault.error

    def _reply(self, unique: int, body: bytes, error: int) -> None:
        with suppress(FileNotFoundError):  # the request was interrupted meanwhile
            os.write(self._device, wire.answer(unique, body if not error else b"", error))

    # --- orders ---

    def arm(self, fault: Fault | None) -> int:
        """From now on count and meet; how many requests of its kinds the last fault has seen."""
        seen, self._count = self._count, 0
        self._fault, self._met = fault, []
        return seen

    def met(self) -> list[str]:
        """What the armed fault has met so far."""
        return self._met

    def let_go(self) -> int:
        """Do and answer what hangs; how many there were."""
        hung, self._hung, self._fault = self._hung, [], None
        for raw in hung:
            self.serve(raw)
        return len(hung)

    def mark(self, value: object) -> None:
        """Note in the log what the test knows now."""
        self.disk.mark(value)

    def log(self) -> list[Any]:
        """Everything that was done so far, in order."""
        return self.disk.log

    def begin(self) -> None:
        """Begin a new log."""
        self.disk.log = []


def main(folder: Path, control: socket.socket) -> None:
    """Serve until the test closes its end, whatever signal its group gets: then the mount goes."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    device = wire.mount_over(folder)
    try:
        server = Server(device)
        _send(control, None)
        while True:
            ready, _, _ = select.select([device, control.fileno()], [], [])
            if device in ready:
                try:
                    server.serve(os.read(device, wire.REQUEST_BYTES_MAX))
                except OSError as error:
                    if error.errno != ENOENT:
                        return
            elif not _obey(server, control):
                return
    finally:
        unmount(folder)
        os.close(device)


def _obey(server: Server, control: socket.socket) -> bool:
    head = control.recv(8, socket.MSG_WAITALL)
    if len(head) < len(bytes(8)):
        return False
    raw = control.recv(int.from_bytes(head, "little"), socket.MSG_WAITALL)
    name, arguments = pickle.loads(raw)
    _send(control, getattr(server, name)(*arguments))
    return True


def _send(control: socket.socket, value: object) -> None:
    raw = pickle.dumps(value)
    control.sendall(len(raw).to_bytes(8, "little") + raw)


if __name__ == "__main__":
    main(Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])))
