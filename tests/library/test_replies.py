"""Replies of the providers' SDKs, and lists that hold them in any form, become the same messages."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types import Message
from openai.types.chat import ChatCompletion
from openai.types.responses import Response, ResponseCodeInterpreterToolCall

from contextstash.library.replies import as_natives, read_reply
from contextstash.messages.base import read_usage
from contextstash.messages.detection import get_format
from contextstash_storage.errors import BadInputError
from tests.support.provider import REPLIES, Said

INPUT = {"path": None, "lines": [1, None]}

COUNTED: dict[str, Any] = {"input_tokens": 107, "output_tokens": 20}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
REASONED = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "c2ln"}
ANTHROPIC = REPLIES["anthropic"]("claude-opus-4-5", Said("I look.", ("read", INPUT), THOUGHT, **COUNTED))
ANTHROPIC["content"][1]["citations"] = None
CITED = {"type": "char_location", "cited_text": "a", "document_index": 0, "document_title": None, "file_id": None}
RANGE = {"start_char_index": 0, "end_char_index": 1}
ANTHROPIC["content"].append({"type": "text", "text": "It says a.", "citations": [{**CITED, **RANGE}]})
CHAT = REPLIES["openai-chat"]("gpt-5.4", Said("", ("read", {"path": None}), **COUNTED))
RESPONSES = REPLIES["openai-responses"]("gpt-5.4", Said("", ("read", {}), REASONED, **COUNTED))
RESPONSES["usage"]["input_tokens_details"]["cache_write_tokens"] = 0
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
    messages, reported = read_reply(reply)
    assert all(get_format(fmt).read(native).role == "assistant" for native in messages)
    usage = read_usage(reported or {})
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (107, 20)


def test_every_form_in_which_a_program_appends_a_reply_is_the_same_message() -> None:
    message = Message.model_validate(ANTHROPIC)
    [said], _ = read_reply(message)
    assert said["content"][2]["input"] == INPUT
    assert said["content"][3]["citations"][0].items() >= CITED.items()
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
    assert as_natives(chat) == read_reply(CHAT)[0] * len(chat)
    ran = {"type": "code_interpreter_call", "id": "c", "status": "completed", "container_id": "c", "code": "1"}
    assert as_natives([ResponseCodeInterpreterToolCall.model_validate({**ran, "outputs": None})])[0]["outputs"] is None


def test_what_the_user_wrote_is_left_as_it_is() -> None:
    messages = [
        {"content": [{"text": "hi", "type": "text"}], "role": "user"},
        {"role": "user", "content": None},
        {"type": "function_call_output", "status": None, "call_id": "call_1", "output": "x"},
    ]
    natives = as_natives(messages)
    assert all(native is message for native, message in zip(natives, messages, strict=True))


HI = {"role": "user", "content": "hi"}


@pytest.mark.parametrize("wrong", [None, "done", 3, HI, ANTHROPIC["content"], [{"type": "text", "text": "I read it."}]])
def test_what_is_no_reply_or_a_part_of_one_is_refused(wrong: Any) -> None:
    with pytest.raises(BadInputError, match="Pass the whole response"):
        read_reply(wrong)
    with pytest.raises(BadInputError, match="This reply has no message"):
        read_reply({"choices": []})


def test_what_is_no_list_of_messages_is_refused() -> None:
    with pytest.raises(BadInputError, match="Message 1 is a str"):
        as_natives([HI, "hello"])
    for one in ("Why?", HI):
        with pytest.raises(BadInputError, match="messages is the list of all messages"):
            as_natives(one)
