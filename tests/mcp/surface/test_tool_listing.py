"""What a client sees of the tools before it calls one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import Tool

from contextstash.mcp.server import INSTRUCTIONS, build_server
from contextstash.stash import Stash
from contextstash.tokenizer import count_with
from tests.support.client_files import SESSION, ClientTranscript
from tests.support.servers import Mode, stdio_client

AGENT_TOOLS = [
    "estimate_context", "prune_tool_outputs", "compact_session", "get_summary", "get_archived_output",
    "search_history", "restore_outputs", "context_status",
]  # fmt: skip
PROGRAM_TOOLS = [
    "record_messages", "get_context", "recover_context", "list_sessions", "configure_session", "delete_session",
]  # fmt: skip


async def never_opened() -> Stash:
    raise AssertionError("listing must not open the store")


async def listed(tools: Any, mode: Mode = "auto") -> list[Tool]:
    async with Client(build_server(never_opened, tools), mode=mode) as client:
        return (await client.list_tools()).tools


def tokens_of(tools: list[Tool]) -> int:
    seen = [{"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema} for tool in tools]
    return count_with("o200k_base")(json.dumps(seen, ensure_ascii=False))


async def test_a_model_is_offered_the_agent_tools_in_a_fixed_order(tmp_path: Path, mode: Mode) -> None:
    async with stdio_client(tmp_path / "s.db", mode, tools="agent") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == AGENT_TOOLS


async def test_a_program_is_offered_all_tools(mode: Mode) -> None:
    assert [tool.name for tool in await listed("all", mode)] == AGENT_TOOLS + PROGRAM_TOOLS


@pytest.mark.parametrize(("tools", "most"), [("agent", 1_200), ("all", 2_200)])
async def test_the_tools_take_few_tokens_of_a_window(tools: str, most: int) -> None:
    assert tokens_of(await listed(tools)) <= most


async def test_every_tool_declares_its_side_effects() -> None:
    for tool in await listed("all"):
        hints = tool.annotations
        assert tool.title
        assert tool.description
        assert hints
        assert None not in (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint)
        assert hints.open_world_hint is False
        assert hints.destructive_hint is (tool.name == "delete_session")


async def test_every_argument_and_result_field_is_described_and_typed() -> None:
    for tool in await listed("all"):
        assert tool.output_schema
        assert tool.output_schema["type"] == "object"
        for schema in (tool.input_schema, tool.output_schema, *tool.output_schema.get("$defs", {}).values()):
            for name, field in schema["properties"].items():
                assert field.get("description"), f"{tool.name}.{name}"
                typed = field.get("anyOf", [field])
                assert all(each.keys() & {"type", "$ref", "enum"} for each in typed), f"{tool.name}.{name}"


async def test_the_instructions_reach_the_client_and_are_short_enough_for_every_one() -> None:
    async with Client(build_server(never_opened)) as client:
        assert client.instructions == INSTRUCTIONS
    assert len(INSTRUCTIONS.encode()) < 2_048
    assert count_with("o200k_base")(INSTRUCTIONS) <= 200


async def test_tools_that_change_only_our_view_say_so_first() -> None:
    async with Client(build_server(never_opened, "agent", followed=True)) as client:
        listed = (await client.list_tools()).tools
    tools = {tool.name: tool for tool in listed}
    for name in ("prune_tool_outputs", "compact_session", "restore_outputs"):
        description = tools[name].description or ""
        assert description.startswith("Changes contextstash's own view only, not your window")
        assert "Shrink" not in description
    assert tokens_of(listed) <= 1_200


async def test_the_answers_name_both_scales(stash: Stash, tmp_path: Path) -> None:
    client = ClientTranscript(tmp_path, stash)
    client.write("user", "Read everything.")
    for number in range(20):
        client.call("Bash", {"command": f"cat {number}.txt"}, "word " * 3_000)
    client.say("Read.", prompt_tokens=168_959)
    await client.read()
    pruned = await stash.prune_tool_outputs(SESSION, keep_last=1, protect_tokens=0, minimum_tokens=0)
    assert pruned.archived
    compacted = await stash.compact_session(
        SESSION, summary="All twenty files were read; what follows is to compare them with the plan."
    )
    restored = await stash.restore_outputs([compacted.summary_id or ""], session_id=SESSION)
    estimate = await stash.estimate_context(SESSION)
    for result in (pruned, compacted, restored):
        assert result.in_words().startswith("Your window is unchanged: your client sends 168,96")
        assert list(result.model_dump(exclude_none=True))[:2] == ["session_id", "note"]
    assert estimate.view_tokens is not None
    assert estimate.view_tokens < 40_000
    assert estimate.in_words().startswith(f"Your client sends {estimate.tokens:,} of")
    assert f"contextstash's view: {estimate.view_tokens:,}." in estimate.in_words()
