"""Resources, prompts and completions, and the protocol errors around them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.types import INVALID_PARAMS, PromptReference, ResourceTemplateReference, TextContent, TextResourceContents

from contextstash.mcp.answers import TIMELINE
from contextstash.mcp.server import URI
from tests.support.servers import SESSION, Mode, answer, record, small_session, stdio_client

pytestmark = pytest.mark.processes

SUMMARY = "The parser is being fixed; the public API must not change."


async def contents(client: Client, uri: str) -> TextResourceContents:
    [content] = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    return content


async def shown(client: Client, uri: str) -> Any:
    content = await contents(client, uri)
    assert content.mime_type == "application/json"
    return json.loads(content.text)


async def compacted(client: Client) -> str:
    """Record a session with one pruned output and a summary; returns the handle of the output."""
    await record(client)
    await answer(client, "configure_session", session_id=SESSION, settings={"compact_keep_tokens": 0})
    pruned = await answer(client, "prune_tool_outputs", session_id=SESSION, keep_last=1)
    made = await answer(client, "compact_session", session_id=SESSION, summary=SUMMARY)
    assert (made["compacted"], made["strategy"]) == (True, "host")
    assert made["tokens_after"] < made["tokens_before"]
    assert (await answer(client, "get_summary", session_id=SESSION))["summary_id"] == made["summary_id"]
    handle: str = pruned["archived"][0]["handle"]
    return handle


async def test_resources_show_the_contents_of_a_session(tmp_path: Path, mode: Mode) -> None:
    base = f"context://sessions/{SESSION}"
    async with stdio_client(tmp_path / "s.db", mode) as client:
        handle = await compacted(client)
        sessions = await shown(client, "context://sessions")
        session = await shown(client, base)
        context = await shown(client, f"{base}/context")
        events = await shown(client, f"{base}/events")
        calls = await shown(client, f"{base}/calls")
        summary = await contents(client, f"{base}/summary")
        output = await contents(client, f"context://archive/{handle}")
    assert [each["session_id"] for each in sessions["sessions"]] == [SESSION]
    assert session["tokens"] > 0
    assert SUMMARY in str(context["messages"])
    assert len(context["messages"]) < len(small_session())
    assert {"prune", "compaction"} <= {event["kind"] for event in events["events"]}
    assert calls["calls"] == []
    words, _, text = summary.text.partition("\n\n")
    assert words.startswith("[contextstash user: ")
    assert "Never touch the public API." in words
    assert (text.split("\n\n## ")[0], summary.mime_type) == (SUMMARY, "text/markdown")
    assert output.mime_type == "text/plain"
    assert output.text.startswith("0: value_0_0")


async def test_messages_are_paged(tmp_path: Path, mode: Mode) -> None:
    uri = f"context://sessions/{SESSION}/messages"
    read: list[Any] = []
    async with stdio_client(tmp_path / "s.db", mode) as client:
        await record(client)
        first: int | None = 0
        while first is not None:
            page = await shown(client, f"{uri}?first={first}&limit=5")
            assert len(page["messages"]) <= 5
            read += [line["message"] for line in page["messages"]]
            first = page.get("next_seq")
        whole = await shown(client, uri)
        none = await shown(client, f"{uri}?limit=0")
    assert none["next_seq"] == 1, "not the page itself again"
    assert read == small_session()
    assert len(whole["messages"]) == len(small_session())


async def test_a_long_output_says_how_to_read_the_rest(tmp_path: Path) -> None:
    call, result = small_session()[2:4]
    lines = [f"{n}: {n * n:x}" for n in range(20_000)]
    huge = {**result, "content": "\n".join(lines)}
    async with stdio_client(tmp_path / "s.db") as client:
        await answer(client, "record_messages", session_id=SESSION, messages=[call, huge])
        pruned = await answer(client, "prune_tool_outputs", session_id=SESSION, keep_last=0)
        handle = pruned["archived"][0]["handle"]
        page = (await contents(client, f"context://archive/{handle}")).text.splitlines()
        offset = page[-1].split("offset=")[1].split()[0]
        following = (await contents(client, f"context://archive/{handle}?offset={offset}")).text
    assert page[:2] == lines[:2]
    assert following.splitlines()[0] == lines[int(offset) - 1]


WRONG = (
    "context://sessions/nobody",
    "context://sessions/nobody/messages",
    "context://archive/out_nothing",
    "context://elsewhere",
    f"context://sessions/{SESSION}/summary",
    *(f"context://sessions/{SESSION}/messages?first={value}" for value in ("many", "-1", "1.5", "9" * 30)),
)
NO_PROMPTS: dict[str, dict[str, str]] = {"handoff": {"session_id": "nobody"}, "context_status": {}}


async def test_what_cannot_be_read_is_a_protocol_error(tmp_path: Path, mode: Mode) -> None:
    async with stdio_client(tmp_path / "s.db", mode) as client:
        await record(client)
        read: list[Any] = [partial(client.read_resource, uri) for uri in WRONG]
        for call in (*read, *(partial(client.get_prompt, *given) for given in NO_PROMPTS.items())):
            with pytest.raises(MCPError) as raised:
                await call()
            assert raised.value.code == INVALID_PARAMS
            assert raised.value.message
            assert "Traceback" not in raised.value.message


async def prompt_text(client: Client, name: str, **arguments: str) -> str:
    [message] = (await client.get_prompt(name, arguments)).messages
    assert message.role == "user"
    assert isinstance(message.content, TextContent)
    return message.content.text


async def test_prompts_guide_the_model_through_a_compaction(tmp_path: Path, mode: Mode) -> None:
    async with stdio_client(tmp_path / "s.db", mode) as client:
        prompts = (await client.list_prompts()).prompts
        await compacted(client)
        compact = await prompt_text(client, "compact", session_id=SESSION, instructions="Keep error codes.")
        status = await prompt_text(client, "context_status", session_id=SESSION[:8])
        handoff = await prompt_text(client, "handoff", session_id=SESSION[:8])
    assert [prompt.name for prompt in prompts] == ["compact", "context_status", "handoff"]
    assert "compact_session" in compact
    assert "Keep error codes." in compact
    assert SESSION in compact
    assert "level ok" in status
    assert SUMMARY in handoff


async def test_ids_and_handles_are_completed(tmp_path: Path, mode: Mode) -> None:
    session = ResourceTemplateReference(uri="context://sessions/{session_id}")
    archive = ResourceTemplateReference(uri="context://archive/{handle}")
    async with stdio_client(tmp_path / "s.db", mode) as client:
        handle = await compacted(client)
        by_template = await client.complete(session, {"name": "session_id", "value": "par"})
        by_prompt = await client.complete(PromptReference(name="compact"), {"name": "session_id", "value": "par"})
        none = await client.complete(session, {"name": "session_id", "value": "zzz"})
        handles = await client.complete(archive, {"name": "handle", "value": handle[:6]})
    assert by_template.completion.values == [SESSION]
    assert by_prompt.completion.values == [SESSION]
    assert none.completion.values == []
    assert handle in handles.completion.values


async def test_the_tool_names_a_page_and_tells_it_the_window_over_time(tmp_path: Path, mode: Mode) -> None:
    async with stdio_client(tmp_path / "s.db", mode) as client:
        [tool] = [tool for tool in (await client.list_tools()).tools if tool.name == "context_status"]
        assert tool.meta == {"ui": {"resourceUri": URI}}
        [page] = (await client.read_resource(URI)).contents
        assert isinstance(page, TextResourceContents)
        assert page.mime_type == "text/html;profile=mcp-app"
        assert "http://" not in page.text
        assert "https://" not in page.text
        await record(client)
        await answer(client, "prune_tool_outputs", session_id=SESSION, keep_last=1)
        result = await client.call_tool("context_status", {"session_id": SESSION})
    status, timeline = result.structured_content, (result.meta or {})[TIMELINE]
    assert status
    assert "timeline" not in status
    assert timeline["points"][-1]["parts"] == status["estimate"]["breakdown"]
    assert [change["kind"] for change in timeline["changes"]] == ["prune"]
