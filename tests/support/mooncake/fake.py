"""An imitated Mooncake behind one HTTP server in a thread.

The Master's own paths answer as the real one does, and `/call` stands for the RPCs of the client
library (`fake_client`).
"""

import pickle
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.mooncake.imitation import LEASE_TTL_S, Imitation, Object, Paces

PACES = Paces()
__all__ = ["LEASE_TTL_S", "FakeMooncake", "Object", "Paces", "fake"]


class FakeMooncake(Imitation):
    """A Master with two hosts that offload."""

    def __init__(self, paces: Paces = PACES) -> None:
        super().__init__(paces=paces)
        self._thawed = threading.Event()
        self._thawed.set()
        self._refuses = False
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                if self._is_kept_waiting():
                    return
                status, body = fake._answer(self.path)
                self._send(status, body)

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                if self._is_kept_waiting():
                    return
                if self.path != "/call":
                    self._send(*fake._drain(self.path, raw))
                    return
                name, args, kwargs = pickle.loads(raw)
                self._send(200, pickle.dumps(fake.call(name, *args, **kwargs)))

            def _is_kept_waiting(self) -> bool:
                """Wait while the Master hangs; True when the connection just ends."""
                fake._thawed.wait()
                self.close_connection |= fake._refuses
                return fake._refuses

            def _send(self, status: int, body: bytes) -> None:
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    self.close_connection = True

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.admin = self.master = f"127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._thawed.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def freeze(self) -> None:
        self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    def take_away(self) -> None:
        """Every connection ends without an answer: nobody has to wait for a deadline."""
        self._refuses = True

    def bring_back(self) -> None:
        self._refuses = False

    def settle(self) -> None:
        """Wait until every object has been offloaded."""

        def quiet() -> bool:
            with self._lock:
                self._tick()
                return all(one.offload_at is None for one in self.objects.values())

        while not quiet():
            time.sleep(0.01)


@contextmanager
def fake(paces: Paces = PACES) -> Iterator[FakeMooncake]:
    """An imitation that ends with the block."""
    made = FakeMooncake(paces)
    try:
        yield made
    finally:
        made.close()
