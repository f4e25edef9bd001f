"""`open_stash`: contextstash within a program, driven by the providers' real SDKs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI, BadRequestError

import contextstash
from contextstash import open_stash, open_stash_sync
from contextstash.library.session import LibrarySession
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Event, Request
from tests.support.effort import THOROUGH, examples
from tests.support.stashes import round_of
from tests.support.strict_provider import Body, StrictProvider, part_of_a_log, strict_provider

Messages = list[dict[str, Any]]


def asked(text: str) -> Messages:
    return [{"role": "user", "content": text}]


def answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


SYSTEM = "You read logs, part by part. " * 40
PARAMETERS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FUNCTION = {"name": "read_part", "description": "Read a part.", "parameters": PARAMETERS}
TOOLS: dict[str, dict[str, Any]] = {
    "anthropic": {"name": "read_part", "description": "Read a part.", "input_schema": PARAMETERS},
    "openai-chat": {"type": "function", "function": FUNCTION},
    "openai-responses": {"type": "function", **FUNCTION},
}


async def run_loop(fmt: str, url: str, session: LibrarySession, messages: list[Any]) -> str:
    """An agent loop as a user writes it with the provider's SDK; returns the first reply without a tool call."""
    openai = AsyncOpenAI(base_url=f"{url}/v1", api_key="test", max_retries=0)
    async with AsyncAnthropic(base_url=url, api_key="test", max_retries=0) as anthropic, openai:
        create: dict[str, Any] = {"anthropic": anthropic.messages, "openai-chat": openai.chat.completions}
        name = "input" if fmt == "openai-responses" else "messages"
        while True:
            request = await session.request(messages, system=SYSTEM, tools=[TOOLS[fmt]], max_tokens=2_000)
            assert request.fits, request.reason
            send = create.get(fmt, openai.responses).create
            try:
                reply = await send(**{name: request.messages, **request.options})
            except BadRequestError as error:
                request = await session.recover(error)
                reply = await send(**{name: request.messages, **request.options})
            appended, calls, text = read_by_program(fmt, reply, await session.reply(reply))
            messages += appended
            if not calls:
                return text
            messages += [answer_of(fmt, call_id, part_of_a_log(int(number))) for call_id, number in calls]


def read_by_program(fmt: str, reply: Any, said: list[Any]) -> tuple[list[Any], list[tuple[str, Any]], str]:
    """What a program appends to its list, mostly the SDK's own objects; the calls of a reply, and its text."""
    if fmt == "anthropic":
        calls = [(block.id, block.input["n"]) for block in reply.content if block.type == "tool_use"]
        text = "".join(block.text for block in reply.content if block.type == "text")
        return [{"role": "assistant", "content": reply.content}], calls, text
    if fmt == "openai-chat":
        message = reply.choices[0].message
        calls = [(call.id, json.loads(call.function.arguments)["n"]) for call in message.tool_calls or ()]
        return [message], calls, message.content or ""
    items = [item for item in reply.output if item.type == "function_call"]
    return said, [(item.call_id, json.loads(item.arguments)["n"]) for item in items], str(reply.output_text)


def answer_of(fmt: str, call_id: str, text: str) -> dict[str, Any]:
    if fmt == "anthropic":
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": text}]}
    if fmt == "openai-chat":
        return {"role": "tool", "tool_call_id": call_id, "content": text}
    return {"type": "function_call_output", "call_id": call_id, "output": text}


MODELS = {"anthropic": "claude-opus-4-5", "openai-chat": "gpt-5.4", "openai-responses": "gpt-5.4"}
"""A model for the loop of each format."""


TURNS = examples(100)


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
        session = stash.session("tenant-10", model="gpt-5.4", window=8_000)
        messages: list[Any] = [{"role": "user", "content": "Why?"}, *round_of(1, part_of_a_log(1), tool="read_part")]
        request = await session.request([*messages, *round_of(2, part_of_a_log(2), tool="read_part")], max_tokens=1_000)
        shown = request.messages[2]["content"]
        assert "1:77 GET" not in shown
        [handle] = set(re.findall(r"out_\w+", shown))
        assert {tool["function"]["name"] for tool in session.tools()} == {"get_archived_output", "search_history"}
        assert "1:77 GET" in str(await session.call_tool("get_archived_output", json.dumps({"handle": handle})))
        assert handle in str(await session.call_tool("search_history", {"query": "read_part", "limit": 2.0}))
        assert await session.call_tool("read_part", {"n": 1}) is None
        assert str(await session.call_tool("get_archived_output", {"handel": handle})).startswith("Error: ")
        assert "loans" in str(await session.call_tool("search_history", {"query": "loans"}))
        assert "no session" in str(await stash.session("tenant-1").call_tool("search_history", {"query": "loans"}))


async def test_a_refused_request_is_sent_again_smaller(tmp_path: Path) -> None:
    """The window is declared as twice what it is, so that the provider refuses."""
    with strict_provider(window=16_000, turns=8) as provider:
        async with open_stash(tmp_path / "s.db") as stash:
            session = stash.session("job", model="gpt-5.4", window=32_000)
            messages: list[Any] = [{"role": "user", "content": "Why do loans fail?"}]
            assert await run_loop("openai-chat", provider.url, session, messages) == "done"
        assert len(provider.over) == 1
        assert provider.invalid == []


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


async def test_a_system_message_of_anthropics_stays_where_it_stands(tmp_path: Path) -> None:
    async with open_stash(tmp_path / "s.db") as stash:
        messages = [*asked("hi"), {"role": "system", "content": "Answer in French."}, answer("salut"), *asked("why?")]
        request = await stash.session("job", model="claude-opus-4-8").request(messages, system="Be brief.")
    assert (request.messages, request.options["system"]) == (messages, "Be brief.")


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
        with pytest.raises(BadInputError, match="There is no preset"):
            await stash.use_cases.configure_session("job", settings={"preset": ["rolling"]})
        assert len((await stash.use_cases.list_sessions()).sessions) == 1


async def test_a_stash_is_used_within_async_with_and_not_given_the_place_of_the_key(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="cannot be given by open_stash"):
        open_stash(tmp_path / "s.db", settings={"encryption_key": "file:/run"})
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


async def test_a_request_behind_another_agents_is_an_error_and_the_others_session_goes_on(tmp_path: Path) -> None:
    async with open_stash(tmp_path / "s.db") as stash:
        one, other = (stash.session("job", model="gpt-5.4", window=32_000) for _ in range(2))
        mine, theirs = asked("Fix the build."), asked("Write the docs.")
        await one.request(mine)
        mine += await one.reply(answer("The build is fixed."))
        await other.request(theirs)
        with pytest.raises(BadInputError, match=r"Another agent records in session 'job' at the same time.*own"):
            await one.request([*mine, *asked("Thanks.")])
        with pytest.raises(BadInputError, match="at the same time"):
            await one.reply(answer("The build is fixed again."))
        theirs += await other.reply(answer("The docs are written."))
        request = await other.request([*theirs, *asked("Again.")])
    assert [message["content"] for message in request.messages] == [
        "Write the docs.", "The docs are written.", "Again."
    ]  # fmt: skip


async def test_agents_that_hand_one_conversation_on_and_a_program_that_starts_again_are_fine(tmp_path: Path) -> None:
    async with open_stash(tmp_path / "s.db") as stash:
        planner, worker = (stash.session("job", model="gpt-5.4", window=32_000) for _ in range(2))
        messages = asked("Fix the build.")
        for agent in (planner, worker, planner):
            await agent.request(messages)
            messages += [*await agent.reply(answer(f"Step {len(messages)}.")), *asked("Go on.")]
        again = stash.session("job", model="gpt-5.4", window=32_000)
        assert len((await again.request(asked("Something else."))).messages) == 1


BOUND_TURNS = 150 if THOROUGH else 40
WINDOWS = (32_000, 128_000) if THOROUGH else (32_000,)
BINDING = {"anthropic": "claude-opus-5-5", "openai-responses": "gpt-6.2-sol"}


def messages_of(body: Body) -> list[Body]:
    found: list[Body] = body["messages"] if "messages" in body else body["input"]
    return found


def changes(requests: list[Body]) -> int:
    """How many requests do not begin with all of the one before them, breakpoints aside."""
    plain = [json.dumps(messages_of(body)).replace(', "cache_control": {"type": "ephemeral"}', "") for body in requests]
    return sum(not new.startswith(old[:-1]) for old, new in pairwise(plain))


def check(provider: StrictProvider, events: Sequence[str]) -> None:
    """Nothing was refused or dropped, and what was sent changed in compactions only."""
    assert (provider.invalid, provider.over) == ([], [])
    assert provider.mismatched == [0] * (BOUND_TURNS + 1)
    counted = Counter(events)
    assert counted["compaction"] > 0
    assert counted["prune"] == 0
    assert changes(provider.requests) == counted["compaction"]
    for (old, new), (before, after) in zip(pairwise(provider.bare), pairwise(provider.requests), strict=True):
        assert new <= old or changes([before, after])


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("fmt", BINDING)
async def test_in_a_program_reasoning_stays_until_a_compaction(tmp_path: Path, fmt: str, window: int) -> None:
    with strict_provider(window=window, turns=BOUND_TURNS, binds=True) as provider:
        async with open_stash(tmp_path / "s.db") as stash:
            session = stash.session("job", model=BINDING[fmt], window=window)
            messages: list[Any] = [{"role": "user", "content": "Why do loans fail?"}]
            assert await run_loop(fmt, provider.url, session, messages) == "done"
            events = [event.kind for event in await stash.use_cases.store.read_log("job", Event, limit=1_000)]
    check(provider, events)


async def test_a_reply_is_not_recorded_in_another_agents_conversation(tmp_path: Path) -> None:
    async with open_stash(tmp_path / "s.db") as stash:
        one, other = (stash.session("job", model="gpt-5.4", window=32_000) for _ in range(2))
        await one.request(asked("Fix the build."))
        await other.request(asked("Write the docs."))
        with pytest.raises(BadInputError, match="at the same time"):
            await one.reply(answer("The build is fixed."))
        assert "build" not in str(await other.messages())
