"""A server whose lists never settle and whose errors have any code: `python unruly_upstream.py COUNTER`. It counts in
that file how often its tools were listed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PAGE = 300
"""Tools of one page; every page names a next one."""


def write(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tools(page: int, listed: int) -> list[dict[str, Any]]:
    """A page of tools whose names all become the same in a form that providers accept; one of them is new each time."""
    names = (
        ["fail", "ask", f"new_{listed}"]
        if page == 0
        else [f"x{chr(0x4E00 + page * PAGE + each)}" for each in range(PAGE)]
    )
    return [{"name": name, "inputSchema": {"type": "object"}} for name in names]


def main(counter: Path) -> None:
    listed = 0
    for line in sys.stdin:
        message = json.loads(line)
        number, method, params = message.get("id"), message.get("method"), message.get("params") or {}
        if number is None:
            continue
        if method == "initialize":
            capabilities = {"tools": {"listChanged": True}, "prompts": {}, "resources": {}}  # it has no prompts
            about = {"name": "unruly\x1b[2J", "version": "1"}
            answer = {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": about}
            write({"id": number, "result": answer})
        elif method == "tools/list":
            page = int(params.get("cursor") or 0)
            listed += page == 0
            counter.write_text(str(listed))
            write({"id": number, "result": {"tools": tools(page, listed), "nextCursor": str(page + 1)}})
            write({"method": "notifications/tools/list_changed"})
        elif params.get("name") == "ask":  # and read no response
            for each in range(20_000):
                write({"id": f"q{each}", "method": "ping"})
        elif method.endswith("/list"):
            write({"id": number, "error": {"code": -32601, "message": "Method not found"}})
        else:
            write({"id": number, "error": {"code": -32000, "message": f"no rights for {method}"}})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
