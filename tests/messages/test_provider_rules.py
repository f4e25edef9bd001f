"""What the validation of message lists finds, one rule at a time."""

from __future__ import annotations

from typing import Any

import pytest

from contextstash_storage.records import Native
from tests.support.provider_rules import violations

GO: Native = {"role": "user", "content": "go"}


def use(call_id: str) -> Native:
    return {"type": "tool_use", "id": call_id, "name": "f", "input": {}}


def result(call_id: str) -> Native:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "x"}


def text(said: str) -> Native:
    return {"type": "text", "text": said}


def user(*content: Any) -> Native:
    return {"role": "user", "content": list(content)}


def assistant(*content: Any) -> Native:
    return {"role": "assistant", "content": list(content)}


SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
MARKED = {**text("x"), "cache_control": {"type": "ephemeral"}}


@pytest.mark.parametrize(
    ("natives", "finding"),
    [
        ([assistant(text("hi"))], "Message 0 has the role assistant; the first message must have the role user."),
        ([GO, GO], "Messages 0 and 1 have the same role; merge them into one message."),
        (
            [{"role": "system", "content": "x"}],
            "Message 0 has the role 'system'; only user and assistant are allowed.",
        ),
        ([{**GO, "usage": {}}], "Message 0 has the key 'usage', which a request may not have."),
        ([{"role": "user", "content": ""}], "Message 0 has an empty text."),
        ([user()], "Message 0 has no content."),
        ([user(text(" "))], "Message 0, block 0 is an empty text."),
        ([GO, assistant(use("a"))], "Message 1: the tool use a has 0 results in the next message, not one."),
        (
            [GO, assistant(use("a")), user(result("a"), result("a"))],
            "Message 1: the tool use a has 2 results in the next message, not one.",
        ),
        (
            [GO, assistant(use("a")), user(text("x"), result("a"))],
            "Message 2, block 1: tool results must be the first blocks of their message.",
        ),
        ([user(result("a"))], "Message 0, block 0: the result of a has no tool use in the message before."),
        (
            [GO, assistant({"type": "thinking", "thinking": "x"}, text("y"))],
            "Message 1, block 0: thinking has no signature.",
        ),
        (
            [GO, assistant({"type": "thinking", "thinking": "x", "signature": "s"})],
            "Message 1 ends with thinking; the block that it led to is missing.",
        ),
        ([user(use("a"))], "Message 0, block 0: 'tool_use' is not allowed in a user message."),
        ([GO, assistant({"type": "tool_use"})], "Message 1, block 0: 'tool_use' has no id."),
        ([user({"type": "tool_result"})], "Message 0, block 0: 'tool_result' has no tool_use_id."),
        (
            [GO, assistant({"type": "redacted_thinking", "data": "x", "cache_control": {}}, text("y"))],
            "Message 1, block 0: thinking cannot be a cache breakpoint.",
        ),
        ([GO, assistant(FOUND)], "Message 1: 'web_search_tool_result' has no call before it."),
        ([GO, assistant(SEARCH), GO], "Message 1: the provider's tool use s has no result."),
        ([user(*[MARKED] * 5)], "The list has 5 cache breakpoints; at most 4 are allowed."),
        (
            [user({"type": "compaction", "content": ""})],
            "Message 0, block 0: the content of a compaction may be null but not empty.",
        ),
    ],
)
def test_anthropic_rules(natives: list[Native], finding: str) -> None:
    assert finding in violations("anthropic", natives)


TEXT: Native = {"role": "assistant", "content": "x"}


def chat_call(*ids: str) -> Native:
    calls = [{"id": id_, "type": "function", "function": {"name": "f", "arguments": "{}"}} for id_ in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def chat_result(call_id: str) -> Native:
    return {"role": "tool", "tool_call_id": call_id, "content": "x"}


@pytest.mark.parametrize(
    ("natives", "finding"),
    [
        ([GO, {"role": "assistant", "content": ""}], "Message 1 has no content."),
        ([{"role": "user", "content": ""}], "Message 0 has no content."),
        ([GO, chat_call("a")], "Message 1: the call a is not answered directly after it."),
        (
            [chat_call("a", "b"), chat_result("b"), GO, chat_result("a")],
            "Message 0: the call a is not answered directly after it.",
        ),
        (
            [chat_call("a"), GO, chat_result("a")],
            "Message 2: the result of a has no open call directly before it.",
        ),
        ([chat_call("a", "a"), chat_result("a")], "Message 0 contains two calls with the same id."),
        ([{"role": "assistant", "content": None}], "Message 0 has no content."),
        (
            [{"role": "assistant", "content": "x", "tool_calls": []}],
            "Message 0: tool_calls must be omitted or contain at least one call.",
        ),
        ([{**GO, "usage": {}}], "Message 0 has the key 'usage', which a request may not have."),
        (
            [{"role": "user", "content": []}],
            "Message 0: content must be a string or a list of at least one part.",
        ),
        ([{**GO, "tool_calls": [1]}], "Message 0: only the assistant can call tools."),
        ([{"role": "tool", "content": "x"}], "Message 0 has the role tool but no tool_call_id."),
        ([{**TEXT, "tool_calls": [1]}], "Message 0 contains a tool call without an id."),
    ],
)
def test_openai_chat_rules(natives: list[Native], finding: str) -> None:
    assert finding in violations("openai-chat", natives)


def item(kind: str, **keys: Any) -> Native:
    return {"type": kind, **keys}


CALL = item("function_call", call_id="a", name="f", arguments="{}")
OUTPUT = item("function_call_output", call_id="a", output="x")
REASONING = item("reasoning", id="rs", summary=[])


@pytest.mark.parametrize(
    ("natives", "finding"),
    [
        ([CALL], "Item 0: the call a has no output."),
        ([OUTPUT], "Item 0: the output of a has no open call before it."),
        ([CALL, OUTPUT, OUTPUT], "Item 2: the output of a has no open call before it."),
        ([CALL, CALL, OUTPUT], "Item 1: the call a is repeated while it has no output."),
        (
            [item("custom_tool_call", call_id="a"), OUTPUT],
            "Item 1 is a 'function_call_output', but the call a needs a 'custom_tool_call_output'.",
        ),
        ([REASONING], "Item 0: reasoning is not followed by the item that it led to."),
        ([REASONING, GO], "Item 0: reasoning is not followed by the item that it led to."),
        (
            [item("reasoning", id="rs"), CALL, OUTPUT],
            "Item 0: reasoning has no summary list (it may be empty, but not missing).",
        ),
        ([{**CALL, "status": None}, OUTPUT], "Item 0: status may be omitted but not null."),
        ([{**GO, "usage": {}}], "Item 0 has the key 'usage', which a request may not have."),
        ([{"content": "x"}], "Item 0 has neither type nor role."),
    ],
)
def test_openai_responses_rules(natives: list[Native], finding: str) -> None:
    assert finding in violations("openai-responses", natives)


def content(role: str, *parts: Any) -> Native:
    return {"role": role, "parts": list(parts)}


def asking(*ids: str | None, name: str = "f") -> Native:
    return content("model", *({"functionCall": {**({"id": id_} if id_ else {}), "name": name}} for id_ in ids))


def answering(*ids: str | None, name: str = "f") -> Native:
    answers = ({**({"id": id_} if id_ else {}), "name": name, "response": {"output": "x"}} for id_ in ids)
    return content("user", *({"functionResponse": answer} for answer in answers))


SAY = content("user", {"text": "go"})


@pytest.mark.parametrize(
    ("natives", "finding"),
    [
        ([content("model", {"text": "x"})], "Content 0 has the role model; the first content must have the role user."),
        ([content("assistant", {"text": "x"})], "Content 0 has the role 'assistant'; only user and model are allowed."),
        ([{"parts": [{"text": "x"}]}, SAY], "Content 0 has no role."),
        ([{**SAY, "usageMetadata": {}}], "Content 0 has the key 'usageMetadata', which a request may not have."),
        ([content("user")], "Content 0: parts must not be empty."),
        ([content("user", {})], "Content 0, part 0 has no data: an empty part is refused."),
        ([content("user", {"text": ""})], "Content 0, part 0 has no text."),
        ([content("user", {"thoughtSignature": "c2ln"})], "Content 0, part 0 has no data: an empty part is refused."),
        (
            [content("user", {"text": "x", "inline_data": {}})],
            "Content 0, part 0 has text and inlineData; a part holds one of them.",
        ),
        ([SAY, asking("a")], "Content 1 has 1 function calls, but the next content 0 responses."),
        ([SAY, asking("a"), SAY, answering("a")], "Content 1 has 1 function calls, but the next content 0 responses."),
        ([SAY, asking("a", "b"), answering("a")], "Content 1 has 2 function calls, but the next content 1 responses."),
        (
            [SAY, asking("a", "b"), answering("a"), answering("b")],
            "Contents 2 and 3 both hold function responses; merge them into one content.",
        ),
        ([SAY, asking("a"), answering("b")], "Content 1: the call a of f has no response in the next content."),
        ([SAY, asking("a"), answering(None)], "Content 1: response 0 does not have the id a of its call."),
        ([SAY, asking(None), answering(None, name="g")], "Content 1: response 0 is of g, but call 0 of f."),
        ([answering("a")], "Content 0 has function responses, but the content before it no function calls."),
        ([asking("a", name="")], "Content 0, part 0: the function call has no name."),
        ([content("user", *asking("a")["parts"])], "Content 0, part 0: only the model can call functions."),
        (
            [content("user", {"functionResponse": {"name": "f", "response": "x"}})],
            "Content 0, part 0: the response of f is not an object.",
        ),
        (
            [SAY, content("model", {"functionCall": {"name": "f", "id": ["a"]}}), answering("a")],
            "Content 1, part 0: the id of the call of f is not a text.",
        ),
        (
            [SAY, asking("a"), content("user", {"functionResponse": {"name": "f", "id": {}, "response": {}}})],
            "Content 2, part 0: the id of the response of f is not a text.",
        ),
    ],
)
def test_gemini_rules(natives: list[Native], finding: str) -> None:
    assert finding in violations("gemini", natives)


@pytest.mark.parametrize(
    "natives",
    [
        [{"parts": [{"text": "x"}]}],
        [SAY, SAY, content("model", {"text": "x"}), content("model", {"text": "y"}), SAY],
        [SAY, asking("a"), content("user", *answering("a")["parts"], {"text": "x"})],
        [SAY, asking("a", "b"), answering("b", "a"), SAY],
        [SAY, asking(None, None), answering(None, None)],
        [SAY, asking(None), answering("made up by the client")],
        [SAY, content("model", {"text": "", "thoughtSignature": "c2ln"}), SAY],
    ],
)
def test_what_gemini_accepts_breaks_no_rule(natives: list[Native]) -> None:
    assert violations("gemini", natives) == []


def test_reasoning_before_more_reasoning_before_its_item_is_fine() -> None:
    assert violations("openai-responses", [GO, REASONING, REASONING, CALL, GO, OUTPUT]) == []
