"""The border to obstore: every call has a deadline, and every failure is one the loop knows.

A positive answer of the object store is a result: the object, None for "no such object", False for
"somebody was quicker".  Everything else (refused connections, 5xx after the retries, a passed
deadline) is no answer: TransientError for a question, UnknownOutcomeError for a change, which may
have been carried out all the same.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import obstore
from anyio import fail_after
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from weightctl.controller.errors import (
    ReconcileError,
    TerminalError,
    TransientError,
    UnknownOutcomeError,
)
from weightctl.controller.ports import PIECE_BYTES
from weightctl_objectstore.names import Listing
from weightctl_objectstore.options import Options

PAGE = 1000
"""Objects in one answer to a listing, as S3 bounds it."""
PARTS_AT_ONCE = 2
"""Parts of one upload under way: with the one being filled, its memory is 3 parts."""
PARTS_MAX = 10_000
"""Of one multipart upload, as S3 bounds it."""
_DETAIL_MAX = 300


class Bucket:
    """What the tier asks of the object store; names are below the tier's prefix."""

    def __init__(self, options: Options) -> None:
        self._where = options.where
        self.deadline_s = options.deadline_s
        deadline = timedelta(seconds=options.deadline_s)
        keys = options.credentials
        self._store = S3Store(
            options.bucket,
            prefix=options.prefix,
            config={"endpoint": options.endpoint, "region": options.region}
            if keys is None
            else {
                "endpoint": options.endpoint,
                "region": options.region,
                "access_key_id": keys.key_id,
                "secret_access_key": keys.secret,
                **({"session_token": keys.token} if keys.token else {}),
            },
            client_options={
                "allow_http": options.endpoint.startswith("http://"),
                "connect_timeout": min(deadline, timedelta(seconds=5)),
                "timeout": deadline,
            },
            retry_config={"max_retries": options.retries, "retry_timeout": deadline},
        )

    # --- asking -----------------------------------------------------------------------------------

    async def get(self, name: str) -> tuple[bytes, str] | None:
        """A small object and its ETag; None where there is none."""
        with self.call(f"reading {name}"):
            try:
                found = await obstore.get_async(self._store, name)
                return bytes(await found.bytes_async()), found.meta["e_tag"] or ""
            except FileNotFoundError:
                return None

    async def exists(self, name: str) -> bool:
        """Whether the object is there."""
        with self.call(f"asking for {name}"):
            try:
                await obstore.head_async(self._store, name)
            except FileNotFoundError:
                return False
            return True

    async def read_into(self, name: str, offset: int, buffer: memoryview) -> None:
        """Fill the buffer, which is not empty, from byte `offset` of an object."""
        what = f"reading {len(buffer)} bytes from byte {offset} of {name}"
        with self.call(what):
            part = await obstore.get_range_async(
                self._store, name, start=offset, length=len(buffer)
            )
        if len(part) != len(buffer):
            raise TransientError(what, f"{len(part)} bytes came", "observe again")
        buffer[:] = memoryview(part)

    async def is_empty(self, *, but: str) -> bool:
        """Whether nothing lies below the prefix, but for one name."""
        async for page in self.pages(""):
            if any(name != but for name, _ in page):
                return False
        return True

    async def pages(self, prefix: str) -> AsyncIterator[Sequence[tuple[str, int]]]:
        """Name and size of every object below `prefix`, up to PAGE at a time."""
        stream = obstore.list(self._store, prefix or None, chunk_size=PAGE)
        while True:
            with self.call(f"listing {prefix or 'everything'}"):
                try:
                    page = await anext(stream)
                except StopAsyncIteration:
                    return
            yield [(found["path"], found["size"]) for found in page]

    async def listing(self, prefix: str) -> Listing:
        """The copies below `prefix`."""
        found = Listing()
        async for page in self.pages(prefix):
            found.add(page)
        return found

    # --- changing ---------------------------------------------------------------------------------

    async def put_new(self, name: str, content: bytes) -> bool:
        """Put a small object where none is; False where one is."""
        return await self._put(name, content, "create")

    async def replace(self, name: str, content: bytes, e_tag: str) -> bool:
        """Put a small object over the one with that ETag; False where another one is."""
        return await self._put(name, content, {"e_tag": e_tag})

    async def _put(self, name: str, content: bytes, mode: "obstore.PutMode") -> bool:
        """Put on a condition: of many who do so at once one succeeds, and the others are told."""
        with self.call(f"putting {name}", changes=True):
            try:
                await obstore.put_async(self._store, name, content, mode=mode)
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

    async def delete(self, names: Sequence[str]) -> None:
        """Remove objects; those that are not there are no failure."""
        if names:
            with self.call(f"deleting {len(names)} objects", changes=True):
                await obstore.delete_async(self._store, names)

    def upload(self, name: str, size_bytes: int) -> "Upload":
        """Begin to bring in one object of that size."""
        part_bytes = max(PIECE_BYTES, -(-size_bytes // PARTS_MAX))
        return Upload(self, self._store, name, part_bytes)

    # --- answers ----------------------------------------------------------------------------------

    @contextmanager
    def call(self, what: str, *, changes: bool = False, calls: int = 1) -> Iterator[None]:
        """Bound and translate what happens within; `calls`: how many requests may follow."""
        try:
            with fail_after(self.deadline_s * calls):
                yield
        except (PermissionDeniedError, UnauthenticatedError) as error:
            why = f"the object store refused it: {_first_line(error)}"
            raise TerminalError(self._told(what), why, "mend the keys or their policy") from error
        except (BaseError, OSError) as error:  # TimeoutError is an OSError
            raise self._no_answer(what, error, changes=changes) from error

    def _no_answer(self, what: str, error: Exception, *, changes: bool) -> ReconcileError:
        late = f"no answer within {self.deadline_s:g} s"
        why = late if isinstance(error, TimeoutError) else _first_line(error)
        if changes:
            return UnknownOutcomeError(self._told(what), why, "observe before trying again")
        return TransientError(self._told(what), why, "it is tried again; see the object store")

    def _told(self, what: str) -> str:
        return f"{what} in {self._where}"


class Upload:
    """One object on its way, by multipart where it is long; nothing of it is to be seen before
    `complete`, which makes all of it visible at once.  Leaving it otherwise takes it back.
    """

    def __init__(self, bucket: Bucket, store: S3Store, name: str, part_bytes: int) -> None:
        self._bucket = bucket
        self._name = name
        self._writer = obstore.open_writer_async(
            store, name, buffer_size=part_bytes, max_concurrency=PARTS_AT_ONCE
        )

    async def write(self, piece: bytearray) -> None:
        """Take the next piece over: it is sent later and must not be changed any more."""
        with self._bucket.call(f"sending {self._name}"):
            await self._writer.write(piece)

    async def complete(self) -> None:
        """Send the rest and make the object visible.  Raises UnknownOutcomeError."""
        what = f"completing {self._name}"
        with self._bucket.call(what, changes=True, calls=PARTS_AT_ONCE + 1):
            await self._writer.close()

    async def abort(self) -> None:
        """Take back what was sent.  Raises ReconcileError; what stays then is swept later."""
        with self._bucket.call(f"aborting {self._name}"):
            await self._writer.__aexit__(RuntimeError, RuntimeError("not complete"), None)


def _first_line(error: Exception) -> str:
    """The message without obstore's dump of the request, which follows it."""
    return (str(error).splitlines() or [type(error).__name__])[0][:_DETAIL_MAX]
