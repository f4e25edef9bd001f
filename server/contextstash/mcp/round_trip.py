"""A round trip: start the server as a client does, list its tools and call one of them.

Written as lines of JSON, not with the SDK's client: importing that takes as long as the server's start.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from contextstash_storage.errors import ContextstashError

PROTOCOL = "2025-06-18"
"""The version of the protocol that this client speaks; the server speaks newer ones too."""

HELLO = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "contextstash doctor", "version": "1"}}
CALL = {"name": "estimate_context", "arguments": {"messages": [{"role": "user", "content": "Is everything well?"}]}}
MESSAGES = (
    {"id": 1, "method": "initialize", "params": HELLO},
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/list", "params": {}},
    {"id": 3, "method": "tools/call", "params": CALL},
)


@contextmanager
def round_trip(command: Sequence[str], seconds: float) -> Iterator[Callable[[], tuple[int, int]]]:
    """Start a server, which is ended with the block. Yields a function that waits `seconds` at most and returns how
    many tools the server lists and how many tokens it counts in a message, or raises ContextstashError."""
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server,
        ThreadPoolExecutor(1) as thread,
    ):
        answered = thread.submit(_answered, server)

        def result() -> tuple[int, int]:
            try:
                return answered.result(seconds)
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise ContextstashError("The server did not answer as it should.") from error

        try:
            yield result
        finally:
            server.kill()


def _answered(server: subprocess.Popen[bytes]) -> tuple[int, int]:
    assert server.stdin is not None
    assert server.stdout is not None
    lines = [json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in MESSAGES]
    os.write(server.stdin.fileno(), b"".join(lines))
    results = {}
    for line in server.stdout:
        message = json.loads(line)
        results[message.get("id")] = message.get("result")
        if 3 in results:
            return len(results[2]["tools"]), int(results[3]["structuredContent"]["tokens"])
    raise ValueError("the server ended")
