"""A server whose answers hold what few programs can read: `python hostile_upstream.py`."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler

TEXT = b'{"content":[{"type":"text","text":"correct horse \\ud83d battery"}]}'


def structured(value: bytes) -> bytes:
    """A result with this as its structured content, and a text that must not get into a log."""
    return b'{"content":[{"type":"text","text":"correct horse"}],"structuredContent":{"value":' + value + b"}}"


ANSWERS: dict[str, bytes] = {
    "half": TEXT,
    "name": b'{"content":[],"structuredContent":{"\\ud83d":"\\ud83d"}}',
    "nan": structured(b"NaN"),
    "too_large": structured(b"1e400"),
    "too_long": structured(b"9" * 5_000),
    "deep": structured(b"[" * 1_000 + b"]" * 1_000),
    "broken": structured(b"{bad"),
}
"""The result of each tool, as bytes."""


def answer(line: bytes) -> bytes | None:
    """The response to a message; None for a notification."""
    message = json.loads(line)
    number, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if number is None:
        return None
    if method == "tools/call":
        result = ANSWERS[params["name"]]
    elif method == "tools/list":
        result = json.dumps({"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ANSWERS]}).encode()
    elif method == "initialize":
        about = {"name": "hostile", "version": "1"}
        response = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
        result = json.dumps(response).encode()
    else:
        error = b'{"code":-32601,"message":"Method not found"}'
        return b'{"jsonrpc":"2.0","id":%d,"error":%b}' % (number, error)
    return b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (number, result)


class Handler(BaseHTTPRequestHandler):
    """The same over HTTP."""

    def do_POST(self) -> None:
        response = answer(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(202 if response is None else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(response or b"")))
        self.end_headers()
        self.wfile.write(response or b"")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def main() -> None:
    """Answer requests until standard input ends."""
    for line in sys.stdin.buffer:
        response = answer(line)
        if response is not None:
            sys.stdout.buffer.write(response + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
