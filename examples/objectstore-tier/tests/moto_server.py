"""An S3-compatible server for the tests: moto, with failures on request.

    python moto_server.py          prints its port, serves until it is killed

`PUT /-/KIND` makes every following request fail in that way, and `PUT /-/KIND/METHOD` those of one
HTTP method; `PUT /-/well` ends it.  KIND is `refuse` (503) or `deaf` (carried out, then 500).
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
        self._kind, self._method = WELL, ""

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"].startswith(CONTROL):
            what = environ["PATH_INFO"].removeprefix(CONTROL)
            self._kind, _, self._method = what.partition("/")
            return self._answer(start, "200 OK")
        if self._kind == WELL or self._method not in ("", environ["REQUEST_METHOD"]):
            return self._moto(environ, start)  # type: ignore[no-any-return]
        if self._kind == "refuse":
            return self._answer(start, "503 Slow Down")
        for _ in self._moto(environ, lambda *_: None):
            pass
        return self._answer(start, "500 Lost")

    @staticmethod
    def _answer(start: Callable[..., Any], status: str) -> Iterable[bytes]:
        # Closed, because the body of what was refused has not been read.
        start(status, [("Content-Length", "0"), ("Connection", "close")])
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
