"""Reading, replacing and assembling Chat Completions messages, by example."""

from __future__ import annotations

from typing import Any

import pytest

from contextstash.messages import get_format
from contextstash.messages.repair import MISSING_RESULT, repaired
from contextstash_storage.errors import BadInputError, BadMessageError
from contextstash_storage.records import Native, Usage
from tests.support.provider_rules import violations

CHAT = get_format("openai-chat")
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
USER: Native = {"role": "user", "content": "go"}


def call(*ids: str, **keys: Any) -> Native:
    calls = [
        {"id": id_, "type": "function", "function": {"name": "run", "arguments": '{"command": "ls -l"}'}} for id_ in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls, **keys}


def result(call_id: str, content: Any = "done") -> Native:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def test_tool_calls_are_read_with_name_arguments_and_main_argument() -> None:
    usage = {
        "prompt_tokens": 90,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_reliable": True,
    }
    found = CHAT.read(call("a", "b", usage=usage, content="let me look"))
    assert [block.type for block in found.blocks] == ["text", "tool_call", "tool_call"]
    assert [block.call_id for block in found.blocks] == [None, "a", "b"]
    assert (found.blocks[1].tool, found.blocks[1].argument) == ("run", "ls -l")
    assert found.texts[1] == '{"command": "ls -l"}'
    assert found.usage == Usage(prompt_tokens=90, completion_tokens=3, cached_tokens=64)


@pytest.mark.parametrize(
    ("native", "role", "kinds", "texts"),
    [
        ({"role": "developer", "content": "be brief"}, "system", ["text"], ("be brief",)),
        (
            {"role": "user", "content": [{"type": "text", "text": "hi"}, IMAGE]},
            "user",
            ["text", "image"],
            ("hi", ""),
        ),
        (
            {"role": "user", "content": [{"type": "file", "file": {"filename": "a.pdf"}}]},
            "user",
            ["document"],
            ("a.pdf",),
        ),
        ({"role": "assistant", "content": None, "refusal": "no"}, "assistant", ["text"], ("no",)),
        (
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
            "assistant",
            ["text"],
            ("no",),
        ),
        (
            {"role": "assistant", "content": "hi", "reasoning_content": "hm"},
            "assistant",
            ["thinking", "text"],
            ("hm", "hi"),
        ),
        (
            {"role": "assistant", "content": None, "audio": {"id": "a", "transcript": "hi"}},
            "assistant",
            ["text"],
            ("hi",),
        ),
        ({"role": "assistant", "content": ""}, "assistant", [], ()),
        (
            {"role": "user", "content": [{"type": "new", "a": 1}]},
            "user",
            ["opaque"],
            ('{"type":"new","a":1}',),
        ),
        (result("a", [{"type": "text", "text": "x"}, IMAGE]), "tool", ["tool_result", "image"], ("x", "")),
        (result("a", None), "tool", ["tool_result"], ("",)),
    ],
)
def test_every_kind_of_message_is_read(native: Native, role: str, kinds: list[str], texts: tuple[str, ...]) -> None:
    found = CHAT.read(native)
    assert found.role == role
    assert [block.type for block in found.blocks] == kinds
    assert found.texts == texts


def test_encoded_audio_is_not_counted_as_text() -> None:
    sound = {"type": "input_audio", "input_audio": {"data": "A" * 90_000, "format": "wav"}}
    assert len(CHAT.read({"role": "user", "content": [sound]}).texts[0]) < 200


def test_a_call_of_the_api_before_it_had_tools_is_refused() -> None:
    with pytest.raises(BadMessageError, match="record it as one of tool_calls"):
        CHAT.read({"role": "assistant", "content": None, "function_call": {"name": "now", "arguments": "{}"}})


def test_a_custom_tool_call_has_its_input_as_text() -> None:
    custom = {"name": "apply_patch", "input": "*** Begin Patch\n*** Update File: src/a.py\n@@"}
    native = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "custom", "custom": custom}],
    }
    found = CHAT.read(native)
    assert (found.texts[0], found.blocks[0].argument) == (custom["input"], "src/a.py")


@pytest.mark.parametrize(
    ("native", "complaint"),
    [
        ({"content": "hi"}, "role is missing or null; expected one of system"),
        ({"choices": []}, r"record its choices\[0\].message"),
        ({"role": "user", "content": 5}, "content is a number"),
        ({"role": "tool", "content": "x"}, "tool_call_id is missing"),
        ({"role": "assistant", "tool_calls": {}}, "tool_calls is an object; expected a list"),
        ({"role": "assistant", "tool_calls": [{"id": "a"}]}, r"tool_calls\[0\].function is missing"),
        ({"role": "user", "content": [{"type": "tool_result"}]}, "a 'tool_result' of another format"),
    ],
)
def test_a_wrong_message_is_refused_by_naming_the_field(native: Native, complaint: str) -> None:
    with pytest.raises(BadMessageError, match=complaint):
        CHAT.read(native)


def test_replacing_keeps_the_form_of_the_content_and_everything_else() -> None:
    native = {**result("a", "long"), "name": "run"}
    assert CHAT.replace(native, {0: "short"}) == {**result("a", "short"), "name": "run"}
    parts = result("a", [{"type": "text", "text": "long"}, IMAGE])
    assert CHAT.replace(parts, {0: "short"}) == result("a", [{"type": "text", "text": "short"}])
    with pytest.raises(BadInputError, match="Block 0 of this message is not a tool result"):
        CHAT.replace(USER, {0: "no"})


def test_results_are_put_directly_after_their_call() -> None:
    natives = [USER, call("a", "b"), USER, result("b"), call("c"), result("a"), result("c")]
    assert repaired(CHAT, natives) == [
        USER,
        call("a", "b"),
        result("b"),
        result("a"),
        USER,
        call("c"),
        result("c"),
    ]


def test_fields_of_replies_are_left_out_of_a_request() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 1}
    reply: Native = {"role": "assistant", "content": "hi", "refusal": None, "annotations": []}
    reply["usage"] = usage
    nulls = {"tool_calls": None, "function_call": None, "audio": None}
    assert repaired(CHAT, [USER, {**reply, **nulls}]) == [
        USER,
        {"role": "assistant", "content": "hi", "refusal": None},
    ]


def test_a_call_without_a_result_gets_one_and_a_result_without_a_call_becomes_text() -> None:
    shown = repaired(CHAT, [result("gone", "42 files"), call("a", "b"), result("b"), USER])
    assert shown == [
        {"role": "user", "content": "[Result of a tool call that is no longer shown]\n42 files"},
        call("a", "b"),
        result("b"),
        result("a", MISSING_RESULT),
        USER,
    ]
    assert violations("openai-chat", shown) == []


@pytest.mark.parametrize(
    "empty",
    [
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": ""},
    ],
)
def test_a_message_without_content_is_left_out(empty: Native) -> None:
    assert repaired(CHAT, [USER, empty]) == [USER]


@pytest.mark.parametrize(
    "natives",
    [
        [USER, call("a", content=""), result("a", "")],
        [USER, call("a", reasoning_content="hm"), result("a")],
        [USER, call("call_0"), result("call_0"), USER, call("call_0"), result("call_0", "other")],
    ],
)
def test_a_list_that_providers_accept_goes_out_as_it_came(natives: list[Native]) -> None:
    """An empty text beside calls, reasoning that its provider requires, ids used again."""
    assert repaired(CHAT, natives) == natives
    assert violations("openai-chat", natives) == []


SIGNED = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}


@pytest.mark.parametrize(
    "carrier",
    [
        {"thinking_blocks": [SIGNED], "reasoning_content": "hm"},
        {"reasoning_details": [{"type": "reasoning.text", "text": "hm", "format": "anthropic-claude-v1"}]},
    ],
)
def test_the_signed_thinking_of_a_claude_behind_a_gateway_is_read_and_can_be_left_out(carrier: Native) -> None:
    native = {**call("a"), **carrier}
    found = CHAT.read(native)
    assert (found.blocks[0].type, found.texts[0]) == ("thinking", "hm")
    assert CHAT.is_own(native)
    assert repaired(CHAT, [USER, native, result("a")])[1] == native
    assert CHAT.without_thinking(native) == call("a")
    assert CHAT.without_thinking({"role": "assistant", "content": None, **carrier}) is None


@pytest.mark.parametrize(
    "carrier",
    [
        {"reasoning_content": "hm"},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "Z0FB", "format": "google-gemini-v1"}]},
    ],
)
def test_reasoning_that_its_provider_requires_is_never_left_out(carrier: Native) -> None:
    assert CHAT.without_thinking({**call("a"), **carrier}) == {**call("a"), **carrier}


def test_gemini_signatures_on_calls_go_back_verbatim() -> None:
    signed = call("a", "b")
    signed["tool_calls"][0]["extra_content"] = {"google": {"thought_signature": "Q2lR"}}
    signed["extra_content"] = {"google": {"thought_signature": "RW5k"}}
    natives = [USER, signed, result("a", "long"), result("b", "long")]
    shown = repaired(CHAT, [*natives[:2], *(CHAT.replace(native, {0: "short"}) for native in natives[2:])])
    assert shown == [USER, signed, result("a", "short"), result("b", "short")]
    assert CHAT.without_thinking(signed) == signed
    assert violations("openai-chat", shown) == []
