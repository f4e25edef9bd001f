"""Our own server with the suite's fixtures, over streamable HTTP: python -m tests.conformance.server PORT."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.types import JSONRPCMessage, Tool
from starlette.types import ASGIApp

from contextstash.mcp.server import build_server
from contextstash.operations import OPERATIONS
from contextstash.stash import Stash
from contextstash.web import HostChecks
from contextstash_storage.sqlite import open_sqlite
from tests.conformance.fixtures import add_fixtures


class Events(EventStore):
    """Events in memory, so that a stream can be resumed."""

    def __init__(self) -> None:
        self._events: list[tuple[str, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        last = int(last_event_id)
        if not 0 < last <= len(self._events):
            return None
        stream = self._events[last - 1][0]
        for number, (other, message) in enumerate(self._events[last:], start=last + 1):
            if other == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def _offer_fixtures(server: MCPServer[Any]) -> None:
    """Our server lists and calls its own operations alone: here the suite's tools too, which the SDK's server knows."""
    own_list, own_call = server.list_tools, server.call_tool

    async def list_tools() -> list[Tool]:
        return [*await own_list(), *await MCPServer.list_tools(server)]

    async def call_tool(name: str, *given: Any, **named: Any) -> Any:
        is_own = name in OPERATIONS
        return await (own_call(name, *given, **named) if is_own else MCPServer.call_tool(server, name, *given, **named))

    vars(server).update(list_tools=list_tools, call_tool=call_tool)


def application(folder: Path) -> ASGIApp:
    """The server's application, behind the checks of Host and Origin that the product has."""

    async def open_stash() -> Stash:
        return Stash(await open_sqlite(folder / "sessions.db"))

    server = build_server(open_stash, "all")
    add_fixtures(server)
    _offer_fixtures(server)
    endpoint = server.streamable_http_app(streamable_http_path="/mcp", event_store=Events(), retry_interval=100)
    return HostChecks(endpoint)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        uvicorn.run(application(Path(where)), host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
