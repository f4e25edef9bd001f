"""The gateway with real servers: their tools keep their names, long outputs are archived and shown in part."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from jsonschema import Draft202012Validator
from mcp import Client, MCPError
from mcp.types import CallToolResult, EmbeddedResource, ImageContent, TextResourceContents

from tests.support.gateways import appears, gateway, original, server, text_of, tool_names
from tests.support.servers import MODES, Mode
from tests.support.stashes import stash_at
from tests.support.upstream_servers import PIXEL, lines

pytestmark = pytest.mark.processes

LIMITS = {"chars": 4_000, "tokens": None}


def handle_in(text: str) -> str:
    found = re.search(r"out_[0-9a-z]+", text)
    assert found, text[:500]
    return found.group()


async def schema_of(client: Client, tool: str) -> dict[str, Any]:
    [found] = [each for each in (await client.list_tools()).tools if each.name == tool]
    assert found.output_schema
    return found.output_schema


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
async def test_a_long_text_is_shown_as_a_preview_with_the_handle_of_the_whole(tmp_path: Path, mode: Mode) -> None:
    async with gateway(tmp_path, {"one": server("one", limits=LIMITS)}, mode=mode) as client:
        shown = text_of(await client.call_tool("long_text", {"count": 2_000}))
        assert len(shown) <= 4_000
        assert "ERROR: the thing broke at line 1000" in shown
        assert await original(client, handle_in(shown)) == lines(2_000)


async def test_by_default_an_output_is_shown_up_to_twenty_thousand_characters(tmp_path: Path) -> None:
    async with gateway(tmp_path, {"one": server("one")}) as client:
        assert text_of(await client.call_tool("long_text", {"count": 400})) == lines(400)
        assert len(text_of(await client.call_tool("long_text", {"count": 2_000}))) <= 20_000


async def test_the_output_limits_of_the_settings_apply(tmp_path: Path) -> None:
    async with gateway(tmp_path, {"one": server("one")}, "--set", "output_bytes=500") as client:
        assert len(text_of(await client.call_tool("long_text", {"count": 400}))) <= 500


async def test_a_tool_may_have_limits_of_its_own(tmp_path: Path) -> None:
    rules = server("one", limits=LIMITS, per_tool={"long_text": {"limits": {"chars": None}}})
    async with gateway(tmp_path, {"one": rules}) as client:
        assert text_of(await client.call_tool("long_text", {"count": 2_000})) == lines(2_000)


async def test_a_long_string_is_shortened_equally_in_text_and_structured_content(tmp_path: Path) -> None:
    async with gateway(tmp_path, {"one": server("one", limits=LIMITS)}) as client:
        await client.list_tools()
        result = await client.call_tool("long_string", {"count": 2_000})
        assert result.structured_content == {"result": text_of(result)}
        assert await original(client, handle_in(text_of(result))) == lines(2_000)


async def test_many_records_are_reduced_to_few_that_are_valid_for_the_tools_schema(tmp_path: Path) -> None:
    async with gateway(tmp_path, {"one": server("one", limits=LIMITS)}) as client:
        schema = await schema_of(client, "records")
        result = await client.call_tool("records", {"count": 3_000})
        content = result.structured_content
        Draft202012Validator(schema).validate(content)
        assert content
        assert 0 < len(content["records"]) < 200
        whole = json.loads(await original(client, handle_in(text_of(result))))
        assert len(whole["records"]) == 3_000


async def test_structured_content_that_cannot_be_shortened_within_its_schema_is_unchanged(tmp_path: Path) -> None:
    async with gateway(tmp_path, {"one": server("one", limits=LIMITS)}) as client:
        await client.list_tools()
        result = await client.call_tool("at_least_two_thousand")
        assert result.structured_content
        assert len(result.structured_content["words"]) == 5_000


async def test_many_text_blocks_are_shortened_as_one_text_and_images_are_unchanged(tmp_path: Path) -> None:
    async with gateway(tmp_path, {"one": server("one", limits=LIMITS)}) as client:
        result = await client.call_tool("mixed")
        text, image, embedded = result.content
        assert len(text_of(result)) <= 4_000
        whole = await original(client, handle_in(text_of(result)))
        assert whole == "\n".join(f"part {number}: {lines(200)}" for number in range(10))
        assert text.type == "text"
        assert isinstance(image, ImageContent)
        assert image.data == PIXEL * 400
        assert isinstance(embedded, EmbeddedResource)
        assert isinstance(embedded.resource, TextResourceContents)
        assert embedded.resource.uri == "memory://log"
        assert await original(client, handle_in(embedded.resource.text)) == lines(1_500)


async def test_an_error_is_passed_on_unchanged(tmp_path: Path) -> None:
    async with gateway(tmp_path, {"one": server("one", limits=LIMITS)}) as client:
        result = await client.call_tool("failing")
        assert (result.is_error, text_of(result)) == (True, lines(2_000))


async def test_a_repeated_output_is_reported_as_unchanged_if_that_is_enabled(tmp_path: Path) -> None:
    servers = {"one": server("one", limits=LIMITS, unchanged=True), "two": server("two", limits=LIMITS)}
    async with gateway(tmp_path, servers) as client:
        first = text_of(await client.call_tool("one__long_text", {"count": 50}))
        second = text_of(await client.call_tool("one__long_text", {"count": 50}))
        changed = text_of(await client.call_tool("one__long_text", {"count": 60}))
        assert first == lines(50)
        assert second.startswith("[Unchanged since out_")
        assert changed == lines(60)
        assert await original(client, handle_in(second)) == lines(50)
        for _ in range(2):
            assert text_of(await client.call_tool("two__long_text", {"count": 50})) == lines(50)


async def test_an_output_that_was_deleted_is_archived_again_before_it_is_said_to_be_unchanged(tmp_path: Path) -> None:
    async with gateway(tmp_path, {"one": server("one", limits=LIMITS, unchanged=True)}) as client:
        for _ in range(2):
            await client.call_tool("long_text", {"count": 50})
        async with stash_at(tmp_path / "sessions.db") as stash:
            await stash.delete_session("outputs")
        shown = text_of(await client.call_tool("long_text", {"count": 50}))
        assert await original(client, handle_in(shown)) == lines(50)


async def test_only_names_that_clash_get_a_server_prefix(tmp_path: Path) -> None:
    servers = {"one": server("one", tools={"deny": ["d*"]}), "two": server("two", tools={"allow": ["long_text", "o*"]})}
    async with gateway(tmp_path, servers) as client:
        names = await tool_names(client)
        assert {"one__long_text", "two__long_text", "only_one", "only_two", "records"} <= set(names)
        assert "dying" not in names
        assert len(names) == len(set(names))
        assert names[-1] == "get_archived_output"
        assert text_of(await client.call_tool("only_two")) == "from two"
        with pytest.raises(MCPError, match=r"There is no tool 'only_tow'\. Did you mean 'only_two'"):
            await client.call_tool("only_tow")


@pytest.mark.parametrize("mode", MODES)
async def test_progress_is_passed_on(tmp_path: Path, mode: Mode) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async with gateway(tmp_path, {"one": server("one")}, mode=mode) as client:
        result = await client.call_tool("counting", {"steps": 3}, progress_callback=note)
        assert text_of(result) == "counted"
    assert seen == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


@pytest.mark.parametrize("mode", MODES)
async def test_a_cancelled_call_is_cancelled_at_its_server(tmp_path: Path, mode: Mode) -> None:
    mark = tmp_path / "mark"
    async with gateway(tmp_path, {"one": server("one")}, mode=mode) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "waiting", {"mark": str(mark)})
            await appears(mark.with_suffix(".begun"))
            group.cancel_scope.cancel()
        await appears(mark.with_suffix(".cancelled"))
        assert text_of(await client.call_tool("only_one")) == "from one"


@pytest.mark.parametrize(("mode", "tool"), [("legacy", "asking"), ("legacy", "asking_first"), ("auto", "asking_first")])
async def test_a_servers_request_reaches_the_user_and_the_reply_reaches_the_server(
    tmp_path: Path, mode: Mode, tool: str
) -> None:
    from mcp.types import ElicitResult

    async def answer(_: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"name": "Ada"})

    async with gateway(tmp_path, {"one": server("one")}, mode=mode, elicitation_callback=answer) as client:
        result: CallToolResult = await client.call_tool(tool)
        assert text_of(result) == "accept: name='Ada'"
