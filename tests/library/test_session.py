"""What a request holds for each provider's SDK, and which format a program speaks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from openai.types import CompletionUsage

from contextstash import open_stash
from contextstash.library.session import CallArguments, LibrarySession, plain_system, plain_tools, request_of
from contextstash.messages.detection import shown_format
from contextstash.results import ContextResult
from contextstash_storage.errors import BadInputError, BadMessageError

HI: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
THINKING = {"thinking": {"type": "adaptive", "block_binding": {"x": "y"}}, "betas": ["binding-1"]}


def options(fmt: str, result: dict[str, Any] | None = None, **given: Any) -> dict[str, Any]:
    context = ContextResult(session_id="s", format=fmt, messages=HI, tokens=1, budget=9, fits=True, **(result or {}))
    return request_of(context, "m", CallArguments(**given), reserve=25_000).options


def test_the_options_are_those_of_each_provider_s_call() -> None:
    given: dict[str, Any] = {"system": "s", "tools": [{"name": "t"}], "max_tokens": 5, "more": {"temperature": 0}}
    same = {"model": "m", "tools": [{"name": "t"}], "temperature": 0}
    assert options("anthropic", {"system": "s"}, **given) == {**same, "system": "s", "max_tokens": 5}
    assert options("openai-chat", **given) == {**same, "max_completion_tokens": 5}
    assert options("openai-responses", {"system": "s"}, **given) == {
        **same,
        "instructions": "s",
        "max_output_tokens": 5,
    }
    config = {"system_instruction": "s", "tools": [{"name": "t"}], "max_output_tokens": 5, "top_k": 1}
    gemini = options("gemini", **{**given, "more": {"config": {"top_k": 1}}})
    assert gemini == {"model": "m", "config": config}
    assert options("anthropic") == {"model": "m", "max_tokens": 16_000}  # which the provider demands
    assert options("openai-chat") == {"model": "m"}


def test_one_message_is_not_one_messages() -> None:
    one = ContextResult(session_id="s", format="openai-chat", messages=HI, tokens=1, budget=9, fits=True)
    assert one.in_words() == "1 message, 1 of 9 tokens."


def test_fields_for_invalid_thinking_join_those_of_the_program() -> None:
    more = {"thinking": {"type": "enabled", "budget_tokens": 9}, "extra_headers": {"anthropic-beta": "own"}}
    found = options("anthropic", {"request": THINKING}, max_tokens=5, more=more)
    assert found["thinking"] == {"type": "enabled", "budget_tokens": 9, "block_binding": {"x": "y"}}
    assert found["extra_headers"] == {"anthropic-beta": "own,binding-1"}


def test_system_prompts_and_tools_of_every_form_are_counted() -> None:
    assert plain_system(None) is None
    assert plain_system("s") == "s"
    assert plain_system([{"type": "text", "text": "s"}]) == [{"type": "text", "text": "s"}]
    assert plain_system({"role": "user", "parts": [{"text": "a"}, {"text": "b"}]}) == "a\n\nb"
    assert plain_tools([{"name": "t"}, len]) == [{"name": "t"}]


@pytest.mark.parametrize(
    ("beside", "fmt"),
    [
        ({}, "openai-chat"),
        ({"model": "claude-opus-4-5"}, "anthropic"),
        ({"model": "anthropic/claude-opus-4-5"}, "openai-chat"),
        ({"system": [{"type": "text", "text": "s"}]}, "anthropic"),
        ({"tools": [{"name": "t", "input_schema": {}}]}, "anthropic"),
        ({"tools": [{"type": "function", "function": {}}], "model": "claude-opus-4-5"}, "openai-chat"),
        ({"tools": [{"type": "function", "name": "t"}]}, "openai-responses"),
        ({"model": "gemini-3-pro"}, "openai-chat"),
    ],
)
def test_plain_messages_have_the_format_of_what_is_beside_them(beside: dict[str, Any], fmt: str) -> None:
    assert shown_format(HI, **beside) == fmt


ASKED = {"role": "user", "content": "Why do loans fail?"}
REPLIES: dict[str, Any] = {
    "anthropic": {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "read", "input": {}}]},
    "openai-chat": {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
    },
    "openai-responses": [{"type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"}],
}
RESULTS: dict[str, dict[str, Any]] = {
    "anthropic": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "a log"}]},
    "openai-chat": {"role": "tool", "tool_call_id": "call_1", "content": "a log"},
    "openai-responses": {"type": "function_call_output", "call_id": "call_1", "output": "a log"},
}


@pytest.fixture
async def session(tmp_path: Path, fmt: str) -> AsyncIterator[LibrarySession]:
    """A session that has had its first reply, a tool call."""
    async with open_stash(tmp_path / "s.db") as stash:
        session = stash.session("job", format=fmt)
        await session.request([ASKED])
        await session.reply(REPLIES[fmt])
        yield session


@pytest.mark.parametrize("fmt", REPLIES)
async def test_a_result_without_its_call_shows_that_the_list_is_not_whole(session: LibrarySession, fmt: str) -> None:
    whole = await session.messages()
    for messages in ([RESULTS[fmt]], [ASKED, RESULTS[fmt]]):
        with pytest.raises(BadInputError, match=r"messages \+= await session.reply"):
            await session.request(messages)
    assert await session.messages() == whole == [ASKED, *whole[1:]]
    request = await session.request([*whole, RESULTS[fmt]])
    assert request.messages == [*whole, RESULTS[fmt]]


@pytest.mark.parametrize("fmt", REPLIES)
async def test_a_reply_that_is_asked_for_again_may_be_left_out(session: LibrarySession, fmt: str) -> None:
    assert (await session.request([ASKED])).messages == [ASKED]


@pytest.mark.parametrize("fmt", ["openai-responses"])
@pytest.mark.parametrize("argument", ["previous_response_id", "conversation"])
async def test_a_conversation_that_the_provider_holds_is_refused(session: LibrarySession, argument: str) -> None:
    held: dict[str, Any] = {argument: "resp_1"}
    with pytest.raises(BadInputError, match=argument):
        await session.request([ASKED], **held)
    assert (await session.request([ASKED], **{**held, argument: None})).messages == [ASKED]


@pytest.mark.parametrize("fmt", ["openai-chat"])
async def test_an_error_names_the_message_by_its_place_in_the_program_s_list(session: LibrarySession) -> None:
    messages: list[Any] = await session.messages()
    with pytest.raises(BadMessageError, match="Message 2 cannot"):
        await session.request([*messages, {"role": "tool", "content": "a log"}])
    with pytest.raises(BadInputError, match=r"Message 1 is a list.* \+="):
        await session.request([messages[0], messages[1:]])


@pytest.mark.parametrize("fmt", ["anthropic"])
async def test_a_reply_that_would_fill_the_window_is_refused_with_its_size(session: LibrarySession) -> None:
    with pytest.raises(BadInputError, match="window of this session has 200,000"):
        await session.request([ASKED], max_tokens=200_000)


@pytest.mark.parametrize("fmt", ["openai-chat"])
async def test_a_usage_is_taken_as_the_sdk_has_it_and_nothing_else_is(session: LibrarySession) -> None:
    said: dict[str, Any] = {"role": "assistant", "content": "It is the index."}
    messages = [*await session.messages(), RESULTS["openai-chat"]]
    await session.request(messages)
    with pytest.raises(BadInputError, match="usage must be as the provider reported it"):
        await session.reply(said, usage="5000")
    usage = CompletionUsage(prompt_tokens=5_000, completion_tokens=7, total_tokens=5_007)
    messages += await session.reply(said, usage=usage)
    assert (await session.request([*messages, ASKED])).tokens > 5_007


ITSELF: list[Any] = []
ITSELF.append(ITSELF)

NOT_JSON: dict[str, Any] = {
    "NaN": float("nan"),
    "a tuple": (1,),
    "an object": object(),
    "itself": ITSELF,
    "nested too deep": reduce(lambda deep, _: [deep], range(3_000), list[Any]()),
    "numbers as keys": {"a": 1, 2: 3},
}


@pytest.mark.parametrize("name", NOT_JSON)
async def test_what_json_does_not_have_is_refused_by_our_own_errors(tmp_path: Path, name: str) -> None:
    value = NOT_JSON[name]
    said = {"role": "assistant", "content": None}
    call = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    async with open_stash(tmp_path / "s.db") as stash:
        session = stash.session("job", model="gpt-5.4")
        for message in (
            {"role": "user", "content": value},
            {"role": "user", "content": "x", "more": value},
            {"role": "user", "content": [{"type": "text", "text": "x", "more": [value]}]},
            {**said, "tool_calls": [{**call, "more": value}]},
            {**said, "tool_calls": [{**call, "function": value}]},
            {**said, "tool_calls": value},
            {"role": value, "content": "x"},
        ):
            with pytest.raises(BadInputError, match=r"^Message 1 "):
                await session.request([ASKED, message])
        wrong: Any = ({"system": [{"type": "text", "text": value}]}, {"tools": [{"name": "read", "more": value}]})
        for arguments in wrong:
            with pytest.raises(BadInputError):
                await session.request([ASKED], **arguments)
        await session.request([ASKED])
        for reply in ({**said, "content": value}, {"choices": [{"message": {**said, "content": "x", "more": value}}]}):
            with pytest.raises(BadInputError):
                await session.reply(reply)
        assert await session.messages() == [ASKED]
