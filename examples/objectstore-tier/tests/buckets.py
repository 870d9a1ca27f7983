"""A moto server of this test run, and buckets in it."""

import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from typing import Self

import obstore
from obstore.store import S3Store
from weightctl_objectstore import names

from weightctl.adapters.conformance.suite.harness import TierHarness
from weightctl.adapters.conformance.suite.material import context
from weightctl.controller.core.observation import Member
from weightctl.controller.ports import Tier

PREFIX = "models/tier"
KEYS = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "secret-of-somebody"}
"""What the tests set in the environment; moto takes any."""
_NUMBERS = count(1)


class LocalS3:
    """A server process; `with` ends it."""

    def __enter__(self) -> Self:
        argv = [sys.executable, str(Path(__file__).with_name("moto_server.py"))]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def kill(self) -> None:
        """End it; what it held is gone."""
        self._process.kill()
        self._process.wait()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def send(self, signal_number: int) -> None:
        """Stop it, or let it go on."""
        self._process.send_signal(signal_number)

    def ask(self, method: str, path: str) -> str:
        """One request; the answer's body."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=240)
        try:
            connection.request(method, path, body=b"" if method == "PUT" else None)
            answer = connection.getresponse()
            body = answer.read().decode()
            assert answer.status < 300, body
            return body
        finally:
            connection.close()

    def fail(self, kind: str) -> None:
        """From now on requests fail so: KIND or KIND/METHOD of moto_server.py; `well` ends it."""
        self.ask("PUT", f"/-/{kind}")


@cache
def shared_server() -> LocalS3:
    """The server of this process, which ends with it."""
    os.environ.update(KEYS)
    ending = ExitStack()
    atexit.register(ending.close)
    return ending.enter_context(LocalS3())


class BucketHarness(TierHarness):
    """The contract suite's medium: a bucket of its own."""

    factory = "weightctl_objectstore:create"

    def __init__(self, folder: Path, server: LocalS3 | None = None) -> None:
        super().__init__(folder)
        self.server = server = server or shared_server()
        server.fail("well")  # whatever the last case did
        self.bucket = f"bucket-{next(_NUMBERS)}"
        self.options = {
            "bucket": self.bucket,
            "prefix": PREFIX,
            "endpoint": server.endpoint,
            "deadline_s": 120,
            "retries": 1,
        }
        server.ask("PUT", f"/{self.bucket}")
        self.objects = S3Store(
            self.bucket,
            prefix=PREFIX,
            config={"endpoint": server.endpoint, "region": "us-east-1"},
            client_options={"allow_http": True},
        )

    def medium(self, ability: str) -> Path:
        raise AssertionError(ability)  # nothing of it is a file

    def take_away(self) -> None:
        self.server.fail("refuse")

    def bring_back(self) -> None:
        self.server.fail("well")

    def hasty_tier(self) -> Tier:
        return self._made(context(self.folder / "state"), {"deadline_s": 1})

    def hang(self) -> None:
        self.server.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.server.send(signal.SIGCONT)

    def replace(self) -> None:
        """Somebody emptied the bucket."""
        for name in self.names():
            obstore.delete(self.objects, name)

    def begin_anew(self) -> None:
        self.replace()
        shutil.rmtree(self.folder / "state")

    def flip_bit(self, member: Member, content: bytes) -> None:
        half = len(content) // 2
        hurt = content[:half] + bytes([content[half] ^ 0x10]) + content[half + 1 :]
        self._write(member, hurt)

    def cut(self, member: Member, content: bytes) -> None:
        self._write(member, content[: len(content) // 2])

    def _write(self, member: Member, content: bytes) -> None:
        """Somebody writes over the one object of a replica."""
        group, key = names.encode(member.group_id), names.encode(member.key)
        (name,) = (name for name in self.names() if name.startswith(f"replicas/{group}/{key}/"))
        obstore.put(self.objects, name, content, use_multipart=False)

    def fingerprint(self) -> object:
        found = [(it["path"], it["e_tag"], it["last_modified"]) for it in self._objects()]
        return sorted(found), self.uploads()

    def names(self) -> list[str]:
        """Every object of the tier."""
        return [it["path"] for it in self._objects()]

    def _objects(self) -> "Sequence[obstore.ObjectMeta]":
        return obstore.list(self.objects).collect()

    def uploads(self) -> list[str]:
        """The unfinished uploads."""
        listed = self.server.ask("GET", f"/{self.bucket}?uploads&prefix={PREFIX}")
        return re.findall("<Key>(.*?)</Key>", listed)
