"""Every tool end to end, in both protocol generations, on a server process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from mcp import Client

from contextstash.tokenizer import count_with
from tests.support.servers import SESSION, Mode, answer, record, small_session, stdio_client

pytestmark = pytest.mark.processes

SUMMARY = "The parser is being fixed; the public API must not change. The bug is in module 3, line 70."


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


async def archived_handle(client: Client) -> str:
    pruned = await answer(client, "prune_tool_outputs", session_id=SESSION, keep_last=1)
    handle: str = pruned["archived"][0]["handle"]
    return handle


async def test_recorded_messages_are_returned_unchanged(database: Path, mode: Mode) -> None:
    async with stdio_client(database, mode) as client:
        recorded = await record(client)
        context = await answer(client, "get_context", session_id=SESSION)
    assert (recorded["recorded"], recorded["duplicates"]) == (len(small_session()), 0)
    assert context["messages"] == small_session()
    assert context["fits"] is True


async def test_a_session_is_named_by_the_beginning_of_its_id_and_never_recorded_under_it(database: Path) -> None:
    async with stdio_client(database) as client:
        await record(client, "3f2a9c1e-first", calls=3)
        for tool in ("estimate_context", "context_status", "compact_session", "prune_tool_outputs"):
            found = await answer(client, tool, session_id="3f2a9c1e")
            assert found["session_id"] == "3f2a9c1e-first"
        await record(client, "3f2a9c1e", calls=1)
        assert len((await answer(client, "list_sessions"))["sessions"]) == 2
        assert (await answer(client, "estimate_context", session_id="3f2a9c1e"))["session_id"] == "3f2a9c1e"


async def test_a_pruned_output_is_read_back_word_for_word(database: Path, mode: Mode) -> None:
    async with stdio_client(database, mode) as client:
        await record(client)
        handle = await archived_handle(client)
        pages: list[str] = []
        offset: int | None = 1
        while offset:
            page = await answer(client, "get_archived_output", handle=handle, offset=offset, max_tokens=600)
            pages.append(page["text"])
            offset = page.get("next_offset")
    assert len(pages) > 1
    assert "\n".join(page.rstrip("\n") for page in pages) == small_session()[3]["content"]


async def test_a_compaction_reports_progress(database: Path, mode: Mode) -> None:
    heard: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async with stdio_client(database, mode) as client:
        await record(client)
        await client.call_tool("compact_session", {"session_id": SESSION}, progress_callback=hear)
    assert heard[0] == "Summarizing"


async def test_lists_sent_as_json_text_are_accepted(database: Path, mode: Mode) -> None:
    async with stdio_client(database, mode) as client:
        await record(client)
        handle = await archived_handle(client)
        restored = await answer(client, "restore_outputs", handles=f'["{handle}"]', session_id=SESSION)
    assert [each["handle"] for each in restored["restored"]] == [handle]


CALLS: dict[str, dict[str, Any]] = {
    "estimate_context": {},
    "search_history": {"query": "value_1_3"},
    "configure_session": {"settings": {"compact_keep_tokens": 0}},
    "compact_session": {"summary": SUMMARY},
    "get_summary": {},
    "get_context": {},
    "context_status": {},
    "recover_context": {"error": "prompt is too long: 9000 tokens > 8000 maximum"},
}


async def test_every_result_is_valid_and_within_its_bound_and_the_text_of_its_answer_holds_it(
    database: Path, mode: Mode
) -> None:
    """`answer` compares the two for each call."""
    count = count_with("o200k_base")
    async with stdio_client(database, mode) as client:
        schemas = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
        contents = {"record_messages": await record(client)}
        pruned = await answer(client, "prune_tool_outputs", session_id=SESSION, keep_last=1)
        handle = pruned["archived"][0]["handle"]
        contents |= {"prune_tool_outputs": pruned}
        contents |= {"get_archived_output": await answer(client, "get_archived_output", handle=handle)}
        calls = {**CALLS, "restore_outputs": {"handles": [handle]}, "delete_session": {}}
        for tool, arguments in calls.items():
            contents[tool] = await answer(client, tool, session_id=SESSION, **arguments)
        contents["list_sessions"] = await answer(client, "list_sessions")
    assert contents.keys() == schemas.keys()
    for tool, content in contents.items():
        Draft202012Validator(schemas[tool] or False).validate(content)
        assert "null" not in str(content)
        assert tool == "get_context" or count(str(content)) < 8_000
