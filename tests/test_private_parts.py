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
import pytest
import uvicorn
from mcp import Client
from mcp.server import MCPServer, Server
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from pydantic import ValidationError
from sqlcipher3 import dbapi2 as sqlite3
from starlette.applications import Starlette

from contextstash.mcp.stdio import protocol_server
from contextstash_storage.sqlite.connection import Connection

ROOT = Path(__file__).parent.parent

PRIVATE_NAMES = {
    "server/contextstash/mcp/stdio.py": {"_lowlevel_server"},
    "storage/contextstash_storage/sqlite/connection.py": {"_connection", "_execute", "_running", "_thread"},
}
"""The private names of libraries that each module of ours uses."""

UNDOCUMENTED_MODULES = {
    "mcp.server.mcpserver.tools": "server/contextstash/mcp/surface/tool.py",
    "mcp.server.mcpserver.utilities.func_metadata": "server/contextstash/mcp/surface/tool.py",
}
"""Modules of the SDK that its documentation does not name, and the one module of ours that imports each."""

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


def test_each_undocumented_module_of_the_sdk_is_imported_in_one_module_of_ours() -> None:
    importers: dict[str, set[str]] = {}
    for name, tree in our_modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module in UNDOCUMENTED_MODULES:
                importers.setdefault(node.module, set()).add(name)
    assert importers == {module: {ours} for module, ours in UNDOCUMENTED_MODULES.items()}


CONNECTION = "contextstash_storage/sqlite/connection.py"


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


TOOL = "contextstash/mcp/tool.py"


async def double(number: int, items: list[str] | None = None) -> int:
    """Twice the number."""
    if number < 0:
        raise RuntimeError("below zero")
    if number > 100:
        raise ToolError("over a hundred")
    return 2 * number


def contract_tool() -> Tool:
    return Tool.from_function(double, title="Double", description="Doubles.", structured_output=False)


def test_a_tool_of_the_sdk_has_the_fields_that_we_replace() -> None:
    tool = contract_tool()
    assert {"parameters", "fn_metadata", "meta", "annotations"} <= set(Tool.model_fields), changed(
        TOOL, "mcp", "Tool has other fields"
    )
    assert tool.parameters["properties"].keys() == {"number", "items"}, changed(
        TOOL, "mcp", "Tool.parameters is not the JSON schema of the arguments"
    )
    assert {"arg_model", "output_schema"} <= set(FuncMetadata.model_fields), changed(
        TOOL, "mcp", "FuncMetadata has other fields"
    )


async def test_a_tool_of_the_sdk_converts_arguments_and_results_by_its_metadata() -> None:
    seen: list[str] = []

    class Seeing(FuncMetadata):
        def pre_parse_json(self, data: dict[str, Any]) -> dict[str, Any]:
            seen.append("pre_parse_json")
            return super().pre_parse_json(data)

        def convert_result(self, result: Any) -> Any:
            seen.append("convert_result")
            return super().convert_result(result)

    tool = contract_tool()
    tool.fn_metadata = Seeing(arg_model=tool.fn_metadata.arg_model)
    await tool.run({"number": 2, "items": '["a"]'}, Context(), True)
    assert seen == ["pre_parse_json", "convert_result"], changed(
        TOOL, "mcp", "Tool.run does not convert arguments and results by pre_parse_json and convert_result"
    )
    parsed = tool.fn_metadata.pre_parse_json({"number": 2, "items": '["a"]'})
    assert parsed["items"] == ["a"], changed(TOOL, "mcp", "pre_parse_json does not parse a list in JSON text")


@pytest.mark.parametrize(
    ("number", "cause", "is_plain"), [("x", ValidationError, True), (200, ToolError, True), (-1, RuntimeError, False)]
)
async def test_a_tool_of_the_sdk_raises_a_plain_error_for_arguments_and_a_subclass_for_a_crash(
    number: Any, cause: type[Exception], is_plain: bool
) -> None:
    with pytest.raises(ToolError) as caught:
        await contract_tool().run({"number": number}, Context())
    assert isinstance(caught.value.__cause__, cause), changed(TOOL, "mcp", "a ToolError has another cause")
    assert (type(caught.value) is ToolError) is is_plain, changed(
        TOOL, "mcp", "arguments that do not match and a crash cannot be told apart by the type of the error"
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


async def test_the_sdk_keeps_a_tool_of_a_subclass_as_it_is() -> None:
    class Ours(Tool):
        async def run(self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False) -> Any:
            raise ToolError("run by our class")

    tool = Ours.from_function(double, structured_output=False)
    async with Client(MCPServer[None]("contract", tools=[tool])) as client:
        result: Any = await client.call_tool("double", {"number": 1})
    assert "run by our class" in result.content[0].text, changed(
        TOOL, "mcp", "MCPServer does not call Tool.run of ours"
    )


def test_uvicorn_stops_reading_at_a_limit_of_its_module() -> None:
    """loopback.py sets it for the proxy."""
    from uvicorn.protocols.http import h11_impl

    assert h11_impl.HIGH_WATER_LIMIT == 65536  # type: ignore[attr-defined]
    assert "> HIGH_WATER_LIMIT" in inspect.getsource(h11_impl.H11Protocol.handle_events)
