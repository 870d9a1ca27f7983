"""An S3-compatible server for the tests: moto, with failures on request.

    python moto_server.py          prints its port, serves until it is killed

`PUT /-/KIND` makes every following request fail in that way, `PUT /-/well` ends it:
`refuse` (503 to everything), `deaf` (carried out, and then answered 500).
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

CONTROL = "/-/"
WELL = "well"


class Server:
    """moto behind a switch, as a WSGI application."""

    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._kind = WELL

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"].startswith(CONTROL):
            self._kind = environ["PATH_INFO"].removeprefix(CONTROL)
            start("200 OK", [("Content-Length", "0")])
            return [b""]
        if self._kind == "refuse":
            return self._fail(environ, start, "503 Slow Down")
        if self._kind == "deaf":
            b"".join(self._moto(environ, lambda *_: None))
            return self._fail(environ, start, "500 Lost")
        return self._moto(environ, start)  # type: ignore[no-any-return]

    @staticmethod
    def _fail(environ: dict[str, Any], start: Callable[..., Any], why: str) -> Iterable[bytes]:
        start(why, [("Content-Length", "0"), ("Connection", "close")])
        return [b""]


class Handler(WSGIRequestHandler):
    """Keeps connections open, logs nothing."""

    protocol_version = "HTTP/1.1"

    def log(self, *_: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    server = make_server("127.0.0.1", 0, Server(), threaded=True, request_handler=Handler)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()
