"""Replies of the providers' SDKs, and lists that hold them in any form, become the same messages."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types import Message
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from contextstash.library.replies import as_natives, read_reply
from contextstash.messages.base import read_usage
from contextstash.messages.detection import get_format
from contextstash_storage.errors import BadInputError

INPUT = {"path": None, "lines": [1, None]}

ANTHROPIC: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-opus-4-5",
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
        {"type": "text", "text": "I look.", "citations": None},
        {"type": "tool_use", "id": "toolu_1", "name": "read", "input": INPUT},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 7},
}
CALL = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"path": null}'}}
CHAT: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-5.4",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": None,
                "refusal": None,
                "annotations": [],
                "tool_calls": [CALL],
            },
        }
    ],
    "usage": {"prompt_tokens": 107, "completion_tokens": 20, "total_tokens": 127},
}
RESPONSES: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "gpt-5.4",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "output": [
        {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "c2ln"},
        {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"},
    ],
    "usage": {
        "input_tokens": 107,
        "input_tokens_details": {"cached_tokens": 7, "cache_write_tokens": 0},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 127,
    },
}
GEMINI: dict[str, Any] = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "hello"}]}}],
    "usageMetadata": {"promptTokenCount": 107, "candidatesTokenCount": 20, "totalTokenCount": 127},
}


@pytest.mark.parametrize(
    ("reply", "fmt"),
    [
        (ANTHROPIC, "anthropic"),
        (Message.model_validate(ANTHROPIC), "anthropic"),
        (CHAT, "openai-chat"),
        (ChatCompletion.model_validate(CHAT), "openai-chat"),
        (RESPONSES, "openai-responses"),
        (Response.model_validate(RESPONSES), "openai-responses"),
        (GEMINI, "gemini"),
    ],
)
def test_a_response_is_read_with_its_usage(reply: Any, fmt: str) -> None:
    read = read_reply(reply)
    assert all(get_format(fmt).read(native).role == "assistant" for native in read.messages)
    usage = read_usage(read.usage or {})
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (107, 20)


def test_every_form_in_which_a_program_appends_a_reply_is_the_same_message() -> None:
    message = Message.model_validate(ANTHROPIC)
    [said] = read_reply(message).messages
    assert said["content"][2]["input"] == INPUT
    forms: list[Any] = [
        {"role": "assistant", "content": message.content},
        {"role": "assistant", "content": ANTHROPIC["content"]},
        {"content": [block.model_dump() for block in message.content], "role": "assistant"},
        {"role": "assistant", "content": [block.to_dict() for block in message.content]},
    ]
    assert as_natives(forms) == [said] * len(forms)
    assert {tuple(native) for native in as_natives(forms)} == {tuple(said)}
    completion = ChatCompletion.model_validate(CHAT).choices[0].message
    chat: list[Any] = [completion, completion.model_dump(), completion.to_dict(), {**CHAT["choices"][0]["message"]}]
    assert as_natives(chat) == read_reply(CHAT).messages * len(chat)


def test_what_the_user_wrote_is_left_as_it_is() -> None:
    messages = [
        {"content": [{"text": "hi", "type": "text"}], "role": "user"},
        {"role": "user", "content": None},
        {"type": "function_call_output", "status": None, "call_id": "call_1", "output": "x"},
    ]
    natives = as_natives(messages)
    assert all(native is message for native, message in zip(natives, messages, strict=True))


@pytest.mark.parametrize("wrong", [None, "done", 3, {"role": "user", "content": "hi"}, {"choices": []}])
def test_what_is_no_reply_is_refused(wrong: Any) -> None:
    with pytest.raises(BadInputError):
        read_reply(wrong)


def test_a_list_of_something_else_is_refused() -> None:
    with pytest.raises(BadInputError, match="Message 1 is a str"):
        as_natives([{"role": "user", "content": "hi"}, "hello"])
