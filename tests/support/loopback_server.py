"""An HTTP server of ours on a free port of this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STOP_SECONDS = 0.01
"""How often the server looks whether it shall stop: each test waits for that."""


@contextmanager
def served(handler: type[BaseHTTPRequestHandler], **attributes: object) -> Iterator[str]:
    """The address of a server whose requests this handler answers; `attributes` are set on the handler's class."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (handler,), dict(attributes)))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(STOP_SECONDS,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
