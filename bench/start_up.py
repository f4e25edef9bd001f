"""Measures the start and a tool call of contextstash relative to a bare server on the same SDK.

The two are started alternately and driven over stdio with plain JSON-RPC, so that no work of a client is measured. It
prints medians and their ratio: from start to the first `tools/list` result (goal: at most 1.15), and one tool call on
a running server (goal: at most 1.5).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

BARE_SERVER = '''
from mcp.server import MCPServer

server = MCPServer("bare", version="1")


@server.tool()
async def estimate_context(session_id: str) -> dict[str, int]:
    """Answer at once."""
    return {"tokens": len(session_id)}


server.run()
'''

SESSION = "bench"
CALL = ("tools/call", {"name": "estimate_context", "arguments": {"session_id": SESSION}})
MESSAGES = [
    {"role": "user", "content": "Find the failing test."},
    {"role": "assistant", "content": "It is test_parse, in tests/test_cli.py."},
]


class Server:
    """A server process that reads and writes JSON-RPC lines."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._requests = 0

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its result. Raises RuntimeError if it is an error."""
        assert self._process.stdin
        assert self._process.stdout
        self._requests += 1
        self._send({"jsonrpc": "2.0", "id": self._requests, "method": method, "params": params})
        for line in self._process.stdout:
            answer: dict[str, Any] = json.loads(line)
            if answer.get("id") == self._requests:
                if "result" not in answer or answer["result"].get("isError"):
                    raise RuntimeError(line.decode())
                return answer
        raise RuntimeError(f"the server ended with code {self._process.wait()}")

    def handshake(self) -> None:
        client = {"name": "bench", "version": "1"}
        self.request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(timeout=30)
        assert self._process.stdout
        self._process.stdout.close()


def seconds_to_tools(command: Sequence[str]) -> float:
    """From spawning the process to the first `tools/list` result."""
    started = time.perf_counter()
    server = Server(command)
    server.handshake()
    server.request("tools/list", {})
    taken = time.perf_counter() - started
    server.stop()
    return taken


def seconds_per_call(servers: Sequence[Server], calls: int) -> list[float]:
    """The median of one tool call for each server; they take turns, so that other load on the machine affects all."""
    taken: list[list[float]] = [[] for _ in servers]
    for turn in range(calls + 20):
        for index, server in enumerate(servers):
            started = time.perf_counter()
            server.request(*CALL)
            if turn >= 20:
                taken[index].append(time.perf_counter() - started)
    return [statistics.median(each) for each in taken]


@dataclass(frozen=True)
class Pair:
    """Seconds of the same on the bare server and on ours."""

    bare: float
    ours: float

    @property
    def ratio(self) -> float:
        return self.ours / self.bare


def measured(runs: int, calls: int) -> tuple[Pair, Pair]:
    """The start up to the first `tools/list`, and a call of `estimate_context`; medians."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "bare_server.py"
        script.write_text(BARE_SERVER, encoding="utf-8")
        database = str(Path(folder) / "sessions.db")
        bare = [sys.executable, str(script)]
        ours = [sys.executable, "-m", "contextstash", "serve", "--db", database]
        starts: list[tuple[float, float]] = []
        for run in range(runs + 1):
            pair = (seconds_to_tools(bare), seconds_to_tools(ours))
            if run:
                starts.append(pair)
        started = Pair(*(statistics.median(column) for column in zip(*starts, strict=True)))
        servers = [Server(bare), Server([*ours, "--tools", "all"])]
        for server in servers:
            server.handshake()
        record = {"name": "record_messages", "arguments": {"session_id": SESSION, "messages": MESSAGES}}
        servers[1].request("tools/call", record)
        called = Pair(*seconds_per_call(servers, calls))
        for server in servers:
            server.stop()
    return started, called


def show(what: str, pair: Pair, goal: float) -> None:
    print(
        f"{what:32} bare {1000 * pair.bare:8.2f} ms   contextstash {1000 * pair.ours:8.2f} ms"
        f"   ratio {pair.ratio:5.2f} (goal <= {goal})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=15, help="starts of each server")
    parser.add_argument("--calls", type=int, default=300, help="tool calls to each server")
    parser.add_argument("--json", action="store_true", help="print the seconds as JSON")
    options = parser.parse_args()
    started, called = measured(options.runs, options.calls)
    if options.json:
        print(json.dumps({"start": asdict(started), "call": asdict(called)}))
        return
    show("start to first tools/list", started, 1.15)
    show("one call of estimate_context", called, 1.5)


if __name__ == "__main__":
    main()
