"""Contracts for the parts of libraries that are not public and that we use all the same.

Each part is used in one module. If a test here fails after an upgrade, the library has changed the part: the message
names the module of ours that must follow.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import threading
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiosqlite
import uvicorn
from mcp import Client
from mcp.server import MCPServer, Server
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, Tool
from sqlcipher3 import dbapi2 as sqlite3
from starlette.applications import Starlette

from contextstash.mcp.stdio import protocol_server
from contextstash_storage.sqlite.store import Connection

ROOT = Path(__file__).parent.parent

PRIVATE_NAMES = {
    "server/contextstash/mcp/stdio.py": {"_lowlevel_server"},
    "storage/contextstash_storage/sqlite/store.py": {"_connection", "_execute", "_running", "_thread"},
}
"""The private names of libraries that each module of ours uses."""

PUBLIC_IN_SPITE_OF_THE_NAME = {"_exit", "_replace"}
"""`os._exit` and `_replace` of named tuples: the Python documentation describes both."""


def changed(ours: str, library: str, what: str) -> str:
    """The message of a contract that is broken."""
    return f"{ours} uses a private part of {library} that has changed in version {version(library)}: {what}"


def our_modules() -> Iterator[tuple[str, ast.Module]]:
    for source in ("server/contextstash", "storage/contextstash_storage"):
        for path in sorted((ROOT / source).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC_IN_SPITE_OF_THE_NAME


def defined_names(tree: ast.Module) -> Iterator[str]:
    """Every name that a module defines: functions, classes, variables, fields and attributes of `self`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own_object(node.value):
            yield node.attr


def is_own_object(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def foreign_private_names(tree: ast.Module) -> set[str]:
    """The private names that a module uses and does not define, of its own base classes too."""
    own = set(defined_names(tree))
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            used |= {*(node.module or "").split("."), *(alias.name for alias in node.names)}
        elif isinstance(node, ast.Import):
            used |= {part for alias in node.names for part in alias.name.split(".")}
    return {name for name in used if is_private(name) and name not in own}


def test_each_private_name_of_a_library_is_used_in_the_module_that_is_listed_for_it() -> None:
    found = {name: names for name, tree in our_modules() if (names := foreign_private_names(tree))}
    assert found == PRIVATE_NAMES, "Keep each private part in one module, and add a contract test for a new one here."


CONNECTION = "contextstash_storage/sqlite/store.py"


async def test_a_connection_of_aiosqlite_has_a_thread_that_is_not_started_before_it_is_awaited() -> None:
    connection = aiosqlite.Connection(lambda: sqlite3.connect(":memory:"), 64)
    thread = getattr(connection, "_thread", None)
    assert isinstance(thread, threading.Thread), changed(CONNECTION, "aiosqlite", "_thread is not a thread")
    assert not thread.is_alive(), changed(CONNECTION, "aiosqlite", "_thread runs before `daemon` can be set")
    thread.daemon = True
    await connection
    assert thread.is_alive(), changed(CONNECTION, "aiosqlite", "_thread is not the thread that it works on")
    await connection.close()


async def test_a_connection_of_aiosqlite_runs_a_function_whole_on_its_thread() -> None:
    def where(db: sqlite3.Connection) -> tuple[threading.Thread, sqlite3.Connection]:
        return threading.current_thread(), db

    connection: Any = Connection(lambda: sqlite3.connect(":memory:", check_same_thread=False), 64)
    connection._thread.daemon = True
    await connection
    assert connection._running is True, changed(CONNECTION, "aiosqlite", "_running is not True while it is open")
    assert isinstance(connection._connection, sqlite3.Connection), changed(
        CONNECTION, "aiosqlite", "_connection is not the connection of sqlite3"
    )
    thread, db = await connection._execute(where, connection._connection)
    assert thread is connection._thread, changed(CONNECTION, "aiosqlite", "_execute runs on another thread")
    assert db is connection._connection, changed(CONNECTION, "aiosqlite", "_execute does not pass on arguments")
    await connection.close()
    assert not (connection._running and connection._connection), changed(
        CONNECTION, "aiosqlite", "_running and _connection do not say that it is closed"
    )


async def test_a_function_on_the_thread_of_aiosqlite_runs_to_its_end_if_its_caller_is_cancelled() -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(30)
        ended.set()

    connection: Any = Connection(lambda: sqlite3.connect(":memory:"), 64)
    connection._thread.daemon = True
    await connection
    task = asyncio.ensure_future(connection._execute(work))
    assert await asyncio.to_thread(begun.wait, 30)
    task.cancel()
    await asyncio.wait([task])
    go_on.set()
    await connection.close()
    assert ended.is_set(), changed(CONNECTION, "aiosqlite", "_execute stops a function whose caller is cancelled")


def test_a_server_of_the_sdk_gives_the_server_below_it() -> None:
    below = protocol_server(MCPServer[None]("contract"))
    assert isinstance(below, Server), changed(
        "contextstash/mcp/stdio.py", "mcp", "MCPServer._lowlevel_server is not a mcp.server.Server"
    )
    assert {"read_stream", "write_stream", "initialization_options"} <= set(inspect.signature(below.run).parameters)


async def test_a_server_of_the_sdk_lists_and_calls_tools_by_methods_that_can_be_replaced() -> None:
    class Ours(MCPServer[None]):
        async def list_tools(self) -> list[Tool]:
            return [Tool(name="double", input_schema={"type": "object"})]

        async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> CallToolResult:
            raise ToolError("called by our class")

    async with Client(Ours("contract")) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["double"]
        result: Any = await client.call_tool("double", {"number": 1})
    assert result.is_error
    assert "called by our class" in result.content[0].text, changed(
        "contextstash/mcp/tools.py", "mcp", "MCPServer does not call call_tool of ours"
    )


def test_a_server_of_uvicorn_takes_signals_by_a_method_that_can_be_replaced() -> None:
    assert "capture_signals" in inspect.getsource(uvicorn.Server.serve), changed(
        "contextstash/loopback.py", "uvicorn", "Server.serve does not call capture_signals"
    )


async def test_an_application_of_starlette_has_a_lifespan_that_can_be_replaced() -> None:
    entered: list[str] = []

    class Lifespan:
        async def __aenter__(self) -> None:
            entered.append("in")

        async def __aexit__(self, *_: object) -> None:
            entered.append("out")

    async def receive() -> Any:
        return {"type": "lifespan.startup" if not entered else "lifespan.shutdown"}

    async def send(_: Any) -> None:
        return None

    app = Starlette()
    app.router.lifespan_context = lambda _: Lifespan()
    await app({"type": "lifespan", "app": app}, receive, send)
    assert entered == ["in", "out"], changed(
        "contextstash/loopback.py", "starlette", "Router.lifespan_context is not entered and left"
    )
