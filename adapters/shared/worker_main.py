"""The worker's side: one process that runs an engine's calls, one after another.  Layer: adapters.

A worker may hang in the kernel for as long as a medium pleases, so it holds nothing that anybody
waits for: standard streams on /dev/null, no descriptor but its channel and its buffer, the root as
its folder, a session of its own.  It ends when the channel closes, and the kernel kills it when its
parent dies.

A frame on the channel is a length and a number (both little-endian) and a pickle.  The first one
sent to the worker carries (factory, options); number 0 answers it.  The pickles travel only between
a process and the children that it started itself.
"""

from __future__ import annotations

import ctypes
import importlib
import mmap
import os
import pickle
import signal
import struct
import sys
from typing import TYPE_CHECKING, Any, BinaryIO

from weightctl.controller.errors import WeightctlError

if TYPE_CHECKING:
    from collections.abc import Mapping

FRAME = struct.Struct("<IQ")
FRAME_BYTES_MAX = 256 * 1024 * 1024
PackedError = tuple[type[WeightctlError], tuple[Any, ...], dict[str, Any]]
ANSWER_VALUE = 0
ANSWER_ERROR = 1
ANSWER_BUG = 2

_PR_SET_PDEATHSIG = 1


def pack_frame(number: int, content: object) -> bytes:
    """One frame, ready to send."""
    body = pickle.dumps(content, protocol=pickle.HIGHEST_PROTOCOL)
    return FRAME.pack(len(body), number) + body


def pack_error(error: WeightctlError) -> PackedError:
    """An error as values; its constructor's signature does not matter."""
    return type(error), error.args, dict(vars(error))


def unpack_error(packed: PackedError) -> WeightctlError:
    """Inverse of `pack_error`."""
    kind, args, state = packed
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(state)
    return error


def make_engine(factory: str, buffer: memoryview, options: Mapping[str, object]) -> object:
    """Call the factory that `package.module:name` names."""
    module, _, name = factory.partition(":")
    make = getattr(importlib.import_module(module), name)
    engine: object = make(buffer, **options)
    return engine


def main() -> None:
    """Entry point: `main PARENT CHANNEL_FD MEMORY_FD` in sys.argv."""
    parent, channel, memory = map(int, sys.argv[1:4])
    _die_with(parent)
    sys.path[:] = [os.path.abspath(folder) for folder in sys.path]  # noqa: PTH100 - a text
    os.chdir("/")
    _close_all_but(channel, memory)
    buffer = memoryview(mmap.mmap(memory, os.fstat(memory).st_size))
    os.close(memory)
    with (
        os.fdopen(channel, "rb", closefd=False) as requests,
        os.fdopen(channel, "wb", closefd=False) as answers,
    ):
        try:
            _serve(requests, answers, buffer)
        except (BrokenPipeError, ConnectionResetError):
            os._exit(0)
    os._exit(0)  # nothing here needs a clean end, and an engine's thread must not prevent it


def _die_with(parent: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def _close_all_but(*kept: int) -> None:
    low = 3
    for descriptor in sorted(kept):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))


def _serve(requests: BinaryIO, answers: BinaryIO, buffer: memoryview) -> None:
    engine: object = None
    while (frame := _read_frame(requests)) is not None:
        number, content = frame
        try:
            if number == 0:
                engine = make_engine(content[0], buffer, content[1])
                answer = pack_frame(number, (ANSWER_VALUE, None))
            else:
                method, args, kwargs = content
                result = getattr(engine, method)(*args, **kwargs)
                answer = pack_frame(number, (ANSWER_VALUE, result))
        except WeightctlError as error:
            answer = pack_frame(number, (ANSWER_ERROR, pack_error(error)))
        except Exception as error:  # noqa: BLE001 - a bug of the engine is an answer, too
            answer = pack_frame(number, (ANSWER_BUG, f"{type(error).__name__}: {error}"))
        answers.write(answer)
        answers.flush()


def _read_frame(requests: BinaryIO) -> tuple[int, Any] | None:
    head = requests.read(FRAME.size)
    if len(head) < FRAME.size:
        return None
    size, number = FRAME.unpack(head)
    body = requests.read(size)
    if len(body) < size:
        return None
    return number, pickle.loads(body)  # noqa: S301 - see the module's docstring
