"""`open_stash`: contextstash within a program, driven by the providers' real SDKs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import contextstash
from contextstash import open_stash, open_stash_sync
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Request
from tests.support.effort import examples
from tests.support.plain_loops import MODELS, run_loop
from tests.support.strict_provider import part_of_a_log, strict_provider

TURNS = examples(100)


def looked_up(call_id: str, text: str) -> list[dict[str, Any]]:
    call = {"id": call_id, "type": "function", "function": {"name": "read_part", "arguments": "{}"}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": text},
    ]


@pytest.mark.parametrize("fmt", MODELS)
async def test_a_loop_many_times_its_window_is_never_refused(tmp_path: Path, fmt: str) -> None:
    with strict_provider(window=32_000, turns=TURNS) as provider:
        async with open_stash(tmp_path / "s.db") as stash:
            session = stash.session("job-7", model=MODELS[fmt], window=32_000)
            messages: list[Any] = [{"role": "user", "content": "Why do loans fail?"}]
            assert await run_loop(fmt, provider.url, session, messages) == "done"
            recorded = await stash.use_cases.read_messages("job-7", limit=500)
        assert (provider.invalid, provider.over) == ([], [])
        assert len(provider.accepted) == TURNS + 1
        assert recorded.total == len(messages)  # each reply once, though the list holds it in another form


async def test_what_left_the_window_is_read_again_by_the_model_itself(tmp_path: Path) -> None:
    async with open_stash(tmp_path / "s.db") as stash:
        session = stash.session("job", model="gpt-5.4", window=8_000)
        messages: list[Any] = [{"role": "user", "content": "Why?"}, *looked_up("call_1", part_of_a_log(1))]
        request = await session.request([*messages, *looked_up("call_2", part_of_a_log(2))], max_tokens=1_000)
        shown = request.messages[2]["content"]
        assert "1:77 GET" not in shown
        [handle] = set(re.findall(r"out_\w+", shown))
        assert {tool["function"]["name"] for tool in session.tools()} == {"get_archived_output", "search_history"}
        assert "1:77 GET" in str(await session.call_tool("get_archived_output", json.dumps({"handle": handle})))
        assert handle in str(await session.call_tool("search_history", {"query": "read_part", "limit": 2.0}))
        assert await session.call_tool("read_part", {"n": 1}) is None
        assert str(await session.call_tool("get_archived_output", {"handel": handle})).startswith("Error: ")
        assert "loans" in str(await session.call_tool("search_history", {"query": "loans"}))


async def test_a_refused_request_is_sent_again_smaller(tmp_path: Path) -> None:
    """The window is declared as twice what it is, so that the provider refuses."""
    with strict_provider(window=16_000, turns=8) as provider:
        async with open_stash(tmp_path / "s.db") as stash:
            session = stash.session("job", model="gpt-5.4", window=32_000)
            messages: list[Any] = [{"role": "user", "content": "Why do loans fail?"}]
            assert await run_loop("openai-chat", provider.url, session, messages) == "done"
        assert len(provider.over) == 1
        assert provider.invalid == []


async def test_an_error_about_something_else_is_raised_again(tmp_path: Path) -> None:
    async with open_stash(tmp_path / "s.db") as stash:
        session = stash.session("job", model="gpt-5.4")
        await session.request([{"role": "user", "content": "hi"}])
        with pytest.raises(ConnectionError, match="reset"):
            await session.recover(ConnectionError("reset by peer"))


async def test_a_request_that_cannot_fit_says_what_takes_the_room(tmp_path: Path) -> None:
    async with open_stash(tmp_path / "s.db") as stash:
        session = stash.session("job", model="claude-opus-4-5", window=2_000)
        request = await session.request([{"role": "user", "content": "hi"}], system=part_of_a_log(1))
    assert not request.fits
    assert "system prompt" in (request.reason or "")


async def test_a_conversation_without_content_is_not_an_empty_request(tmp_path: Path) -> None:
    async with open_stash(tmp_path / "s.db") as stash:
        with pytest.raises(BadInputError, match="Nothing to send"):
            await stash.session("empty", model="claude-opus-4-5").request([{"role": "user", "content": ""}])


async def test_a_reply_belongs_to_its_request(tmp_path: Path) -> None:
    async with open_stash(tmp_path / "s.db") as stash:
        session = stash.session("job", model="claude-opus-4-5", window=32_000)
        request = await session.request([{"role": "user", "content": "hi"}], system="Be brief.")
        usage = {"input_tokens": 4_321, "output_tokens": 3}
        said = await session.reply({"role": "assistant", "content": "hello", "usage": usage})
        [kept] = await stash.use_cases.store.read_log("job", Request, newest=True)
    assert request.request_id == f"req_{kept.number}"
    assert kept.usage is not None
    assert kept.usage.prompt_tokens == 4_321
    assert said[0]["content"] == "hello"


async def test_an_edited_list_starts_a_branch_and_the_old_one_is_still_found(tmp_path: Path) -> None:
    async with open_stash(tmp_path / "s.db") as stash:
        session = stash.session("job", model="gpt-5.4")
        await session.request([{"role": "user", "content": "look at the zebra"}])
        request = await session.request([{"role": "user", "content": "look at the giraffe"}])
        assert [message["content"] for message in request.messages] == ["look at the giraffe"]
        assert (await stash.use_cases.search_history("zebra", session_id="job")).hits


async def test_marks_that_a_program_adds_to_a_request_stay_out_of_the_session(tmp_path: Path) -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    async with open_stash(tmp_path / "s.db") as stash:
        session = stash.session("job", model="claude-opus-4-5")
        request = await session.request([message])
        request.messages[0]["content"][0]["cache_control"] = {"type": "ephemeral"}
        assert (await session.request([message])).messages == [message]


async def test_settings_of_a_session_are_in_force_before_its_first_message(tmp_path: Path) -> None:
    async with open_stash(tmp_path / "s.db", settings={"compact_at": 0.9}) as stash:
        session = stash.session("job", model="gpt-5.4", window=9_000, prune_at=0.5)
        await session.request([{"role": "user", "content": "hi"}])
        assert (await stash.use_cases.estimate_context("job")).window == 9_000
        found = (await stash.use_cases.configure_session("job", settings={})).settings
        assert (found["prune_at"], found["compact_at"]) == (0.5, 0.9)
        with pytest.raises(BadInputError, match="prune_at"):
            await stash.session("other", prune_att=0.5).request([{"role": "user", "content": "hi"}])
        assert len((await stash.use_cases.list_sessions()).sessions) == 1


def test_an_address_that_is_no_database_is_refused() -> None:
    with pytest.raises(BadInputError, match="neither a file nor a PostgreSQL database"):
        open_stash("https://example.org")


async def test_a_stash_is_used_within_async_with(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="async with"):
        open_stash(tmp_path / "s.db").session("job")


def test_a_synchronous_program_has_the_same(tmp_path: Path) -> None:
    with open_stash_sync(tmp_path / "s.db") as stash:
        session = stash.session("job", model="gpt-5.4", window=32_000)
        request = session.request([{"role": "user", "content": "hi"}], system="Be brief.", temperature=0)
        assert request.options == {"model": "gpt-5.4", "temperature": 0}
        assert [message["role"] for message in request.messages] == ["system", "user"]
        session.reply({"choices": [{"message": {"role": "assistant", "content": "hello"}}], "usage": None})
        assert "hello" in str(session.call_tool("search_history", {"query": "hello"}))
        with pytest.raises(ConnectionError):
            session.recover(ConnectionError("reset by peer"))


def test_importing_contextstash_imports_nothing_heavy() -> None:
    code = "import sys, contextstash; print(sorted(m for m in sys.modules if m.split('.')[0] in ('pydantic', 'anyio')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="open_stish"):
        contextstash.__getattr__("open_stish")
