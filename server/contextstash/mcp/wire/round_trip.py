"""A round trip: start the server as a client does, list its tools and call one of them.

Written as lines of JSON, not with the SDK's client: importing that takes as long as the server's start.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import IO, Any

from contextstash_storage.errors import ContextstashError

PROTOCOL = "2025-06-18"
"""The version of the protocol that this client speaks; the server speaks newer ones too."""

HELLO = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "contextstash doctor", "version": "1"}}
CALL = {"name": "estimate_context", "arguments": {"messages": [{"role": "user", "content": "Is everything well?"}]}}


class RoundTrip:
    """A round trip that runs while its caller does something else. `with` ends the server."""

    def __init__(self, command: Sequence[str], seconds: float) -> None:
        """`seconds`: after this time the server is ended."""
        self._seconds = seconds
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._found: tuple[int, int] | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> RoundTrip:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._thread.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue
        self._process.wait()

    def result(self) -> tuple[int, int]:
        """How many tools the server lists, and how many tokens it counts in a message. Waits for both. Raises
        ContextstashError if it does not answer, or with an error."""
        self._thread.join(self._seconds)
        if self._found is None:
            raise ContextstashError("The server did not answer as it should.") from self._error
        return self._found

    def _run(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pipes = (self._process.stdin, self._process.stdout)
        try:
            _ask(pipes, 1, "initialize", HELLO)
            _send(pipes[0], {"method": "notifications/initialized"})
            tools = _ask(pipes, 2, "tools/list", {})["tools"]
            answer = _ask(pipes, 3, "tools/call", CALL)
            self._found = len(tools), int(answer["structuredContent"]["tokens"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._error = error


def _send(pipe: IO[bytes], message: dict[str, Any]) -> None:
    pipe.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    pipe.flush()


def _ask(pipes: tuple[IO[bytes], IO[bytes]], number: int, method: str, params: dict[str, Any]) -> Any:
    """The result of a request. What the server sends meanwhile is skipped. Raises ValueError at its end, and KeyError
    if the answer is an error."""
    _send(pipes[0], {"id": number, "method": method, "params": params})
    while line := pipes[1].readline():
        message = json.loads(line)
        if message.get("id") == number:
            return message["result"]
    raise ValueError("the server ended")
