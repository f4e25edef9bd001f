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


def dense(size: int) -> dict[str, Any]:
    """Very many small values, which take longest to parse."""
    rows = [{"n": number, "t": "x"} for number in range(size // 20)]
    return {"content": [], "structuredContent": {"rows": rows}}


def both(size: int) -> dict[str, Any]:
    """Records as structured content, and again as text, as most libraries send them."""
    rows = [{"number": number, "text": f"record {number}"} for number in range(size // 90)]
    return {"content": [{"type": "text", "text": json.dumps({"rows": rows})}], "structuredContent": {"rows": rows}}


def picture(size: int) -> dict[str, Any]:
    """One image."""
    return {"content": [{"type": "image", "data": "QUJD" * (size // 4), "mimeType": "image/png"}]}


def failed(size: int) -> dict[str, Any]:
    """A long error."""
    return {**prose(size), "isError": True}


SHAPES: dict[str, Callable[[int], dict[str, Any]]] = {
    "prose": prose,
    "dense": dense,
    "both": both,
    "picture": picture,
    "failed": failed,
}


def write(message: dict[str, Any], *, id_last: bool = False) -> None:
    """One line of JSON-RPC; with `id_last` its id comes last, as the TypeScript SDK writes it."""
    whole = {"jsonrpc": "2.0", **message}
    if id_last:
        whole = {"result": message["result"], "jsonrpc": "2.0", "id": message["id"]}
    sys.stdout.write(json.dumps(whole, ensure_ascii=False, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


def environment(number: Any, _: dict[str, Any]) -> None:
    """The variables that this process has, names and values."""
    write({"id": number, "result": text(json.dumps(dict(os.environ)))})


def shaped(number: Any, arguments: dict[str, Any]) -> None:
    """An answer of some megabytes."""
    result = SHAPES[arguments["shape"]](int(arguments["megabytes"] * MEGABYTE))
    write({"id": number, "result": result}, id_last=bool(arguments.get("id_last")))


def twice(number: Any, _: dict[str, Any]) -> None:
    """A response with an unknown id, then two responses with the request's id and different texts."""
    for answered, content in ((987_654, "unknown"), (number, "first"), (number, "second")):
        write({"id": answered, "result": text(content)})


def flood(number: Any, _: dict[str, Any]) -> None:
    """Twenty megabytes on standard error before the answer."""
    for _line in range(2_000):
        sys.stderr.write("noise " * 1_667 + "\n")
    write({"id": number, "result": text("done")})


def endless(_: Any, arguments: dict[str, Any]) -> None:
    """A line that does not end."""
    for _ in range(int(arguments["megabytes"])):
        sys.stdout.write("x" * MEGABYTE)
    sys.stdout.flush()


def progress(number: Any, arguments: dict[str, Any]) -> None:
    """Very many notifications of progress before the answer."""
    for step in range(int(arguments["steps"])):
        write({"method": "notifications/progress", "params": {"progressToken": number, "progress": step}})
    write({"id": number, "result": text("done")})


def asking(number: Any, arguments: dict[str, Any]) -> None:
    """Very many questions to the user before the answer, which says how many were answered."""
    schema = {"type": "object", "properties": {}}
    for each in range(int(arguments["asked"])):
        params = {"message": "contextstash asks: your key?", "requestedSchema": schema}
        write({"id": f"q{each}", "method": "elicitation/create", "params": params})
    answered = [json.loads(sys.stdin.readline()) for _ in range(int(arguments["asked"]))]
    write({"id": number, "result": text(str(sum("result" in each for each in answered)))})


TOOLS: dict[str, Callable[[Any, dict[str, Any]], None]] = {
    "environment": environment,
    "shaped": shaped,
    "twice": twice,
    "flood": flood,
    "endless": endless,
    "progress": progress,
    "asking": asking,
}


def main(*names: str) -> None:
    """Serve; `names` are further tools, prompts and resources, which answer with their names."""
    listed = [
        {"name": name, "description": f"{name} of the raw server", "inputSchema": {"type": "object"}}
        for name in (*TOOLS, *names)
    ]
    malformed = [{"name": 5}, None, {"name": "no_schema"}, {"name": "no_object", "inputSchema": {"type": "string"}}]
    for line in sys.stdin:
        message = json.loads(line)
        number, method, params = message.get("id"), message.get("method"), message.get("params") or {}
        if number is None:
            continue
        if method == "initialize":
            about = {"name": "raw", "version": "1"}
            capabilities: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}}
            version = params["protocolVersion"]
            write(
                {
                    "id": number,
                    "result": {"protocolVersion": version, "capabilities": capabilities, "serverInfo": about},
                }
            )
        elif method == "tools/list":
            write({"id": number, "result": {"tools": [*malformed, *listed]}})
        elif method == "prompts/list":
            write({"id": number, "result": {"prompts": [{"name": name} for name in names]}})
        elif method == "resources/list":
            resources = [{"uri": name, "name": name} for name in names if "://" in name]
            write({"id": number, "result": {"resources": resources}})
        elif method == "tools/call" and params["name"] in TOOLS:
            TOOLS[params["name"]](number, params.get("arguments") or {})
        elif method == "tools/call":
            length = (params.get("arguments") or {}).get("length", 0)
            write({"id": number, "result": text(f"raw {params['name']}" + length * "x")})
        else:
            write({"id": number, "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    main(*sys.argv[1:])
