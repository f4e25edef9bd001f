"""The errors of calls that fail: they say what is wrong, and what to do next."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from contextstash.mcp.server import build_server
from contextstash.stash import Stash
from contextstash_storage.errors import StoreBusyError
from tests.support.servers import SESSION, Mode, error, record, stdio_client

pytestmark = pytest.mark.processes


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("estimate_context", {"sesion_id": SESSION}, r"'sesion_id'.* Did you mean 'session_id'\?"),
    ("prune_tool_outputs", {"keep_last": "few"}, "keep_last: Input should be a valid integer"),
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


async def test_an_error_names_what_is_wrong_and_what_is_expected(tmp_path: Path, mode: Mode) -> None:
    async with stdio_client(tmp_path / "s.db", mode) as client:
        await record(client)
        for tool, arguments, complaint in REFUSED:
            text = await error(client, tool, **arguments)
            assert re.search(complaint, text), text
            assert not re.search("secret|pydantic|Error executing tool", text), text


async def test_a_bad_value_is_refused_and_changes_nothing(tmp_path: Path, mode: Mode) -> None:
    async with stdio_client(tmp_path / "s.db", mode) as client:
        await record(client)
        assert "keep_last" in await error(client, "prune_tool_outputs", session_id=SESSION, keep_last=-1)
        assert await error(client, "configure_session", session_id=SESSION, settings={"prune_att": 0.5})
        assert await error(client, "record_messages", session_id=SESSION, messages=[{"role": "wizard"}])
        again = await record(client, whole=True)
    assert again["recorded"] == 0


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


async def test_an_internal_error_shows_neither_contents_nor_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken() -> Stash:
        raise ZeroDivisionError("the user's password is hunter2")

    async with Client(build_server(broken)) as client:
        text = await error(client, "estimate_context")
    assert "ZeroDivisionError" in text
    assert "Try once more" in text
    assert "hunter2" not in text + caplog.text
    assert "estimate_context failed: ZeroDivisionError at" in caplog.text


async def test_a_position_that_is_no_whole_number_is_refused_and_makes_no_session(tmp_path: Path, mode: Mode) -> None:
    async with stdio_client(tmp_path / "s.db", mode, tools="all") as client:
        for position in (True, "0", 0.0):
            messages = [{"role": "user", "content": "hi"}]
            text = await error(client, "record_messages", messages=messages, session_id="new", first_seq=position)
            assert "first_seq: Input should be a valid integer" in text
        assert "new" in await error(client, "estimate_context", session_id="new")


async def test_a_deletion_is_safe_to_repeat(tmp_path: Path, mode: Mode) -> None:
    async with stdio_client(tmp_path / "s.db", mode, tools="all") as client:
        await record(client)
        answers = [await client.call_tool("delete_session", {"session_id": SESSION}) for _ in range(2)]
    assert [answer.is_error for answer in answers] == [False, False]
    assert [answer.structured_content["deleted"] for answer in answers if answer.structured_content] == [True, False]
