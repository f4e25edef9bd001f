"""The tools for a client that sends its own history say first that they change our view alone, in both scales."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mcp import Client

from contextstash.mcp.server import build_server
from contextstash.stash import Stash
from contextstash.tokenizer import count_with
from tests.support.client_files import SESSION, ClientTranscript


async def never_opened() -> Stash:
    raise AssertionError("listing must not open the store")


async def test_tools_that_change_only_our_view_say_so_first() -> None:
    async with Client(build_server(never_opened, "agent", followed=True)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    for name in ("prune_tool_outputs", "compact_session", "restore_outputs"):
        description = tools[name].description or ""
        assert description.startswith("Changes contextstash's own view only, not your window")
        assert "Shrink" not in description
    seen = [
        {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
        for tool in tools.values()
    ]
    assert count_with("o200k_base")(json.dumps(seen, ensure_ascii=False)) <= 1_200


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
    assert pruned.client_tokens == pytest.approx(168_964, abs=20)
    assert compacted.client_tokens == restored.client_tokens == pruned.client_tokens
    for line in (each.in_words() for each in (pruned, compacted, restored)):
        assert line.startswith(f"Your window is unchanged: your client sends {pruned.client_tokens:,} tokens.")
    for result in (pruned, compacted, restored):
        assert list(result.model_dump(exclude_none=True))[:2] == ["session_id", "note"]
    assert estimate.view_tokens is not None
    assert estimate.view_tokens < 40_000
    assert estimate.in_words().startswith(f"Your client sends {estimate.tokens:,} of")
    assert f"contextstash's view: {estimate.view_tokens:,}." in estimate.in_words()


async def test_a_program_that_sends_our_view_reads_of_one_scale(stash: Stash) -> None:
    await stash.record_messages([{"role": "user", "content": "Hello."}], session_id=SESSION)
    estimate = await stash.estimate_context(SESSION)
    pruned = await stash.prune_tool_outputs(SESSION)
    assert estimate.view_tokens is None
    assert pruned.client_tokens is None
    assert pruned.note is None
