"""Every tool end to end, in both protocol generations: its text holds what its structured content holds, because some
clients give their model only the text; an error says what is wrong, and what to do next."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from mcp import Client

from contextstash.mcp.answers import readable
from contextstash.mcp.server import build_server
from contextstash.stash import Stash
from contextstash.tokenizer import count_with
from contextstash_storage.errors import StoreBusyError
from tests.support.effort import examples
from tests.support.servers import SESSION, Mode, answer, error, leaves, record, small_session, stdio_client, text_of

pytestmark = pytest.mark.processes

SUMMARY = "The parser is being fixed; the public API must not change. The bug is in module 3, line 70."


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


async def archived_handle(client: Client) -> str:
    pruned = await answer(client, "prune_tool_outputs", session_id=SESSION, keep_last=1)
    handle: str = pruned["archived"][0]["handle"]
    return handle


async def test_a_session_is_named_by_the_beginning_of_its_id_and_never_recorded_under_it(database: Path) -> None:
    async with stdio_client(database) as client:
        await record(client, "3f2a9c1e-first", calls=3)
        for tool in ("estimate_context", "context_status", "compact_session", "prune_tool_outputs"):
            found = await answer(client, tool, session_id="3f2a9c1e")
            assert found["session_id"] == "3f2a9c1e-first"
        await record(client, "3f2a9c1e", calls=1)
        assert len((await answer(client, "list_sessions"))["sessions"]) == 2
        assert (await answer(client, "estimate_context", session_id="3f2a9c1e"))["session_id"] == "3f2a9c1e"


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


any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=80),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=8), children, max_size=4),
    max_leaves=20,
)

SMALLEST_PAGE = 100
"""The smallest max_tokens that get_archived_output takes."""


@settings(max_examples=examples(200))
@example({"": [{"": "0 "}]}, "")
@given(st.dictionaries(st.text(max_size=8), any_json, max_size=5), st.text(max_size=40))
def test_a_readable_text_holds_every_name_and_value(value: dict[str, Any], headline: str) -> None:
    text = readable(value, headline)
    assert [leaf for leaf in leaves(value) if leaf not in text] == []
    assert text.startswith(headline)


def test_a_text_of_several_lines_stands_as_it_is_after_the_other_fields() -> None:
    output = '  indented "quoted"\n\tline 2\n'
    assert readable({"text": output, "total": 2, "hits": [{"seq": 3, "snippet": output}]}, "1 hit.") == (
        f"1 hit.\ntotal: 2\nhits:\n- seq: 3\n  snippet:\n{output}\ntext:\n{output}"
    )


async def test_a_page_is_shown_word_for_word_below_one_line(tmp_path: Path) -> None:
    async with stdio_client(tmp_path / "s.db") as client:
        await record(client)
        pruned = await answer(client, "prune_tool_outputs", session_id=SESSION, keep_last=1)
        page = await client.call_tool("get_archived_output", {"handle": pruned["archived"][0]["handle"]})
    headline, _, text = text_of(page).partition("\n\n")
    assert "\n" not in headline
    assert text == small_session()[3]["content"]


async def test_no_page_has_more_tokens_than_allowed_its_first_line_included(tmp_path: Path) -> None:
    count = count_with("o200k_base")
    wide = "".join(f"{number * 7919:x} " for number in range(20_000))
    async with stdio_client(tmp_path / "s.db") as client:
        for text in (small_session()[3]["content"], wide):
            handle = await _archived(client, text)
            for tokens in (SMALLEST_PAGE, 250, 2_000):
                for more in ({}, {"offset": 30 if text is not wide else 500_000_001}, {"pattern": "7"}):
                    given = {"handle": handle, "max_tokens": tokens, **more}
                    page = text_of(await client.call_tool("get_archived_output", given))
                    assert count(page) <= tokens, (given, page)


async def _archived(client: Client, text: str) -> str:
    session = f"of-{len(text)}-characters"
    call, result = small_session()[2:4]
    messages = [{"role": "user", "content": "Look."}, call, {**result, "content": text}]
    await answer(client, "record_messages", session_id=session, messages=messages)
    pruned = await answer(client, "prune_tool_outputs", session_id=session, keep_last=0)
    return str(pruned["archived"][0]["handle"])


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("estimate_context", {"sesion_id": SESSION}, r"'sesion_id'.* Did you mean 'session_id'\?"),
    ("prune_tool_outputs", {"keep_last": "few"}, "keep_last: Input should be a valid integer"),
    ("prune_tool_outputs", {"session_id": SESSION, "keep_last": -1}, "keep_last"),
    ("configure_session", {"session_id": SESSION, "settings": {"prune_att": 0.5}}, "prune_at"),
    ("record_messages", {"session_id": SESSION, "messages": [{"role": "wizard"}]}, "wizard"),
    *(
        ("record_messages", {"messages": [], "first_seq": position}, "first_seq: Input should be a valid integer")
        for position in (True, "0", 0.0)
    ),
    ("prune_tool_outputs", {"dry_run": "perhaps"}, "dry_run: Input should be a valid boolean"),
    ("restore_outputs", {"handles": ["out_a", {"handle": "secret"}]}, r"handles\.1: Input should be a valid string"),
    ("compact_session", {"strategy": "magic"}, "strategy: Input should be 'auto', 'host', 'anthropic' or 'extractive'"),
    ("search_history", {}, "query: Field required"),
    ("estimate_context", {"session_id": "nobody"}, "nobody"),
    ("get_archived_output", {"handle": "out_nothing"}, "out_nothing"),
    ("get_summary", {"session_id": SESSION}, "compact_session"),
    ("estimate_context", {}, "session_id"),
]
"""Tools, wrong arguments, and what the error says of them."""


async def test_an_error_names_what_is_wrong_and_expected_and_changes_nothing(tmp_path: Path, mode: Mode) -> None:
    async with stdio_client(tmp_path / "s.db", mode) as client:
        await record(client)
        for tool, arguments, complaint in REFUSED:
            text = await error(client, tool, **arguments)
            assert re.search(complaint, text), text
            assert not re.search("secret|pydantic|Error executing tool", text), text
        assert (await record(client, whole=True))["recorded"] == 0
        assert len((await answer(client, "list_sessions"))["sessions"]) == 1


async def test_a_store_that_could_not_be_opened_is_tried_again_at_the_next_call() -> None:
    tries = []

    async def busy() -> Stash:
        tries.append(1)
        raise StoreBusyError("Another process holds the database. Try again in a moment.")

    async with Client(build_server(busy)) as client:
        first = await error(client, "estimate_context")
        await error(client, "estimate_context")
    assert first == "Another process holds the database. Try again in a moment."
    assert len(tries) == 2


async def test_an_internal_error_shows_neither_contents_nor_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> Stash:
        raise ZeroDivisionError("the user's password is hunter2")

    async with Client(build_server(broken)) as client:
        text = await error(client, "estimate_context")
    assert "ZeroDivisionError" in text
    assert "Try once more" in text
    assert "hunter2" not in text + caplog.text
    assert "estimate_context failed: ZeroDivisionError at" in caplog.text


async def test_a_deletion_is_safe_to_repeat(tmp_path: Path, mode: Mode) -> None:
    async with stdio_client(tmp_path / "s.db", mode, tools="all") as client:
        for name in (SESSION, f"{SESSION}-2"):
            await record(client, name)
        answers = [await client.call_tool("delete_session", {"session_id": SESSION}) for _ in range(2)]
    assert [answer.is_error for answer in answers] == [False, False]
    assert [answer.structured_content["deleted"] for answer in answers if answer.structured_content] == [True, False]
