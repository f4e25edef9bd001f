"""Formats by name, and detected from messages."""

from __future__ import annotations

import pytest

from contextstash.messages.detection import FORMATS, detect_format, get_format
from contextstash_storage.errors import BadInputError, BadMessageError
from contextstash_storage.records import Native
from tests.messages.natives import CHAT_IMAGE, assistant, call_item, chat_result, text, tool_use, user

HI: Native = {"role": "user", "content": "hi"}


def test_the_error_for_an_unknown_name_suggests_the_closest_one() -> None:
    with pytest.raises(BadInputError, match=r"no message format 'antropic'. Did you mean 'anthropic'\?"):
        get_format("antropic")
    with pytest.raises(BadInputError, match="Known: openai-chat, openai-responses, anthropic, gemini"):
        get_format("xyz")


@pytest.mark.parametrize(
    ("telling", "right"),
    [
        (HI, "openai-chat"),
        (chat_result("a"), "openai-chat"),
        (user(CHAT_IMAGE), "openai-chat"),
        (user(text("x", "input_text")), "openai-responses"),
        ({"type": "message", "role": "user", "content": "x"}, "openai-responses"),
        ({"type": "reasoning", "summary": []}, "openai-responses"),
        (call_item("a"), "openai-responses"),
        (assistant(tool_use("a")), "anthropic"),
        (assistant(text("x"), type="message", stop_reason="end_turn"), "anthropic"),
        (user({**text("x"), "cache_control": {"type": "ephemeral"}}), "anthropic"),
    ],
)
def test_one_distinctive_message_decides_for_the_whole_list(telling: Native, right: str) -> None:
    assert detect_format([HI, HI, telling, HI]) == right


@pytest.mark.parametrize(
    "native",
    [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"function_call": {"name": "f", "args": {}}, "thought_signature": "c2ln"}]},
        {"parts": [{"text": None, "inline_data": {"mime_type": "image/png", "data": "aGk="}}], "role": "user"},
    ],
)
def test_contents_are_geminis_and_nobody_elses(native: Native) -> None:
    assert detect_format([native]) == "gemini"
    assert [name for name in FORMATS if get_format(name).misfit(native) is None] == ["gemini"]


@pytest.mark.parametrize(
    ("natives", "says"),
    [
        ([HI, {"text": "hi"}], "Message 1 is not in the format of those before it.*role is missing"),
        (["hi"], "Message 0 is in no known .*of type str; expected an object"),
        ([], "format of an empty list cannot be detected"),
    ],
)
def test_the_error_for_an_invalid_list_says_what_is_wrong(natives: list[Native], says: str) -> None:
    with pytest.raises(BadMessageError, match=says):
        detect_format(natives)
