"""A server whose answers hold what few programs can read: `python hostile_upstream.py`."""

from __future__ import annotations

import json
import sys

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


def main() -> None:
    """Answer requests until standard input ends."""
    for line in sys.stdin:
        message = json.loads(line)
        number, method, params = message.get("id"), message.get("method"), message.get("params") or {}
        if number is None:
            continue
        if method == "tools/call":
            result = ANSWERS[params["name"]]
        elif method == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ANSWERS]
            result = json.dumps({"tools": tools}).encode()
        elif method == "initialize":
            about = {"name": "hostile", "version": "1"}
            told = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
            result = json.dumps(told).encode()
        else:
            error = b'{"code":-32601,"message":"Method not found"}'
            sys.stdout.buffer.write(b'{"jsonrpc":"2.0","id":%d,"error":%b}\n' % (number, error))
            sys.stdout.buffer.flush()
            continue
        sys.stdout.buffer.write(b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (number, result))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
