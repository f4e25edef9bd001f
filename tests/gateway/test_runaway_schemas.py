"""A server's output schema is the server's own text: checking it never blocks the gateway, whatever it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp.types import CallToolResult, TextContent

from contextstash.gateway.servers.worker import Setup, Workers
from contextstash.gateway.shortened_results import Call, Shortening, is_valid
from contextstash.gateway.tool_rules import OutputRules
from contextstash.mcp.lazy_stash import LazyStash
from contextstash.mcp.serve import ServeOptions, opener
from tests.support.effort import THOROUGH

RUNAWAY = {"type": "object", "properties": {"word": {"pattern": "^(a+)+$"}}}
"""Takes hours for forty letters that do not match."""


def call_with(schema: dict[str, Any]) -> Call:
    return Call("hostile", "look", "", OutputRules({"chars": 1_000}), schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$schema": 5},
        {"properties": {"word": {"pattern": "("}}},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    ],
)
def test_no_value_is_valid_for_a_schema_that_breaks_its_checker(schema: dict[str, Any]) -> None:
    assert not is_valid({"word": "a"}, schema)


@pytest.mark.processes
async def test_a_schema_that_takes_hours_is_given_up_and_not_tried_again(tmp_path: Path) -> None:
    setup = Setup(ServeOptions(db=tmp_path / "sessions.db"))
    workers = Workers(setup, max_seconds=2)
    runaway = {"word": "a" * 40 + "!"}
    assert not await workers.valid(runaway, call_with(RUNAWAY))
    assert not await workers.valid({"word": "a"}, call_with(RUNAWAY))  # its server is not given more time
    assert await Workers(setup).valid({"word": "a"}, call_with(RUNAWAY))


@pytest.mark.processes
@pytest.mark.skipif(not THOROUGH, reason="waits for its time limit, long enough for a worker to start")
async def test_a_large_result_with_such_a_schema_is_archived_and_its_structured_content_unchanged(
    tmp_path: Path,
) -> None:
    workers = Workers(Setup(ServeOptions(db=tmp_path / "sessions.db")), max_seconds=20)
    structured = {"word": "a" * 40 + "!", "text": "line\n" * 10_000}
    result = CallToolResult(
        content=[TextContent(type="text", text="line\n" * 10_000)],
        structured_content=structured,
    )
    line = b'{"result":%b}' % result.model_dump_json(by_alias=True).encode()
    taken = await workers.shortened(line, call_with(RUNAWAY))
    assert taken.result
    assert taken.result["structuredContent"] == structured
    assert "out_" in taken.result["content"][0]["text"]


async def test_what_is_not_changed_is_not_checked(tmp_path: Path) -> None:
    result = CallToolResult(content=[], structured_content={"word": "a" * 40 + "!"})
    shortening = Shortening(LazyStash(opener(ServeOptions(db=tmp_path / "sessions.db"))))
    async with shortening.stash.in_use():
        assert await shortening.result(result, call_with(RUNAWAY)) is result
