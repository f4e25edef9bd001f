"""A server that writes its lines itself, so that it can write what no library would: `python raw_upstream.py`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

MEGABYTE = 1_000_000


def prose(size: int) -> dict[str, Any]:
    """One long text, with line breaks."""
    line = "line of a long and rather dull output, with a word or two\n"
    return {"content": [{"type": "text", "text": (line * (size // len(line) + 1))[:size]}]}


def write(message: dict[str, Any]) -> None:
    """One line of JSON-RPC."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


def environment(number: Any, _: dict[str, Any]) -> None:
    """The variables that this process has, names and values."""
    write({"id": number, "result": text(json.dumps(dict(os.environ)))})


def long(number: Any, arguments: dict[str, Any]) -> None:
    """An answer of some megabytes."""
    write({"id": number, "result": prose(int(arguments["megabytes"] * MEGABYTE))})


TOOLS: dict[str, Callable[[Any, dict[str, Any]], None]] = {
    "environment": environment,
    "long": long,
}


def main(*names: str) -> None:
    """Serve; `names` are further tools, which answer with their names."""
    listed = [
        {"name": name, "description": f"{name} of the raw server", "inputSchema": {"type": "object"}}
        for name in (*TOOLS, *names)
    ]
    for line in sys.stdin:
        message = json.loads(line)
        number, method, params = message.get("id"), message.get("method"), message.get("params") or {}
        if number is None:
            continue
        if method == "initialize":
            about = {"name": "raw", "version": "1"}
            capabilities: dict[str, Any] = {"tools": {}}
            version = params["protocolVersion"]
            write(
                {
                    "id": number,
                    "result": {"protocolVersion": version, "capabilities": capabilities, "serverInfo": about},
                }
            )
        elif method == "tools/list":
            write({"id": number, "result": {"tools": listed}})
        elif method == "tools/call" and params["name"] in TOOLS:
            TOOLS[params["name"]](number, params.get("arguments") or {})
        elif method == "tools/call":
            length = (params.get("arguments") or {}).get("length", 0)
            write({"id": number, "result": text(f"raw {params['name']}" + length * "x")})
        else:
            write({"id": number, "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    main(*sys.argv[1:])
