"""Reading, replacing and assembling Gemini contents, by example."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextstash.messages import get_format
from contextstash.messages.repair import ASSISTANT_FIRST, MISSING_RESULT, repaired
from contextstash_storage.errors import BadInputError, BadMessageError
from contextstash_storage.records import Native, Usage
from tests.support.conversations import conversations
from tests.support.effort import examples
from tests.support.provider_rules import violations

GEMINI = get_format("gemini")
GO: Native = {"role": "user", "parts": [{"text": "go"}]}
MORE: Native = {"role": "user", "parts": [{"text": "more"}]}
IMAGE = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}


def asking(*names: str) -> Native:
    return {"role": "model", "parts": [{"functionCall": {"name": name, "args": {"path": "a"}}} for name in names]}


def answering(*names: str, **response: Any) -> Native:
    answers = [{"name": name, "response": response or {"output": f"{name} done"}} for name in names]
    return {"role": "user", "parts": [{"functionResponse": answer} for answer in answers]}


def test_a_reply_is_read_with_thoughts_calls_usage_and_model() -> None:
    reply = {
        "role": "model",
        "parts": [
            {"text": "Let me see", "thought": True},
            {"text": "I look."},
            {"functionCall": {"id": "c1", "name": "Read", "args": {"file_path": "a.py"}}, "thoughtSignature": "c2ln"},
        ],
        "usageMetadata": {"promptTokenCount": 90, "candidatesTokenCount": 3, "thoughtsTokenCount": 8},
        "modelVersion": "gemini-3-pro",
    }
    found = GEMINI.read(reply)
    assert (found.role, found.model) == ("assistant", "gemini-3-pro")
    assert [block.type for block in found.blocks] == ["thinking", "text", "tool_call"]
    assert (found.blocks[2].call_id, found.blocks[2].tool, found.blocks[2].argument) == ("c1", "Read", "a.py")
    assert found.texts == ("Let me see", "I look.", '{"file_path":"a.py"}')
    assert found.usage == Usage(prompt_tokens=90, completion_tokens=11)


def test_both_spellings_are_read_alike() -> None:
    call = {"name": "Read", "args": {"file_path": "a.py"}}
    unset = {"function_response": None, "text": None, "thought": None, "inline_data": None}
    spelled = {"role": "model", "parts": [{**unset, "function_call": {**call, "id": None}, "thought_signature": "x"}]}
    assert GEMINI.read(spelled) == GEMINI.read({"role": "model", "parts": [{"functionCall": call}]})


@pytest.mark.parametrize(
    ("response", "text", "is_error"),
    [
        ({"output": "line 1\nline 2"}, "line 1\nline 2", False),
        ({"result": "42"}, "42", False),
        ({"error": "no such file"}, "no such file", True),
        ({"stdout": "a\n", "exit_code": 1}, '{"stdout":"a\\n","exit_code":1}', False),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "isError": True}, "a\nb", True),
        ({"items": [1, 2]}, '{"items":[1,2]}', False),
        ({}, "", False),
    ],
)
def test_a_function_response_is_read_as_its_text(response: dict[str, Any], text: str, is_error: bool) -> None:
    found = GEMINI.read(answering("Read", **response) if response else answer_with({}))
    assert found.role == "tool"
    assert (found.texts, found.blocks[0].tool, found.blocks[0].is_error) == ((text,), "Read", is_error)


def answer_with(response: Any) -> Native:
    return {"role": "user", "parts": [{"functionResponse": {"name": "Read", "response": response}}]}


def test_calls_without_ids_are_paired_by_name_and_number() -> None:
    calls = [block.call_id for block in GEMINI.read(asking("Read", "Bash", "Read")).blocks]
    assert calls == ["function_call:Read", "function_call:Bash", "function_call:Read#2"]
    assert [block.call_id for block in GEMINI.read(answering("Read", "Bash", "Read")).blocks] == calls


def test_a_replaced_response_stays_an_object_under_its_key_and_loses_its_media() -> None:
    part = {"function_response": {"id": "c", "name": "Shot", "response": {"result": "long"}, "parts": [IMAGE]}}
    native = {"role": "user", "parts": [*answering("Read", stdout="x", stderr="")["parts"], part]}
    before = copy.deepcopy(native)
    assert [block.type for block in GEMINI.read(native).blocks] == ["tool_result", "tool_result", "image"]
    shown = GEMINI.replace(native, {0: "[archived 0]", 1: "[archived 1]"})
    assert shown["parts"] == [
        {"functionResponse": {"name": "Read", "response": {"output": "[archived 0]"}}},
        {"function_response": {"id": "c", "name": "Shot", "response": {"result": "[archived 1]"}}},
    ]
    assert native == before
    with pytest.raises(BadInputError, match="Block 2 of this message is not a tool result"):
        GEMINI.replace(native, {2: "x"})


def test_a_failure_is_still_a_failure_when_it_is_archived() -> None:
    failed = answering("Read", content=[{"type": "text", "text": "no"}], isError=True)
    [part] = GEMINI.replace(failed, {0: "[archived]"})["parts"]
    assert part["functionResponse"]["response"] == {"error": "[archived]"}


def test_media_code_and_unknown_parts_are_read_without_their_data() -> None:
    parts = [
        IMAGE,
        {"fileData": {"mimeType": "application/pdf", "fileUri": "https://example.org/a.pdf"}},
        {"inline_data": {"mime_type": "audio/wav", "data": "A" * 10_000}},
        {"executableCode": {"language": "PYTHON", "code": "print(1)"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"partOfTomorrow": {"a": 1}},
    ]
    found = GEMINI.read({"role": "model", "parts": parts})
    assert [block.type for block in found.blocks] == ["image", "document", "opaque", "tool_call", "opaque", "opaque"]
    assert found.blocks[3].call_id is None
    assert sum(map(len, found.texts)) < 400


@pytest.mark.parametrize(
    ("native", "reason"),
    [
        ({"candidates": []}, r"record its candidates\[0\].content"),
        ({"role": "assistant", "parts": []}, "role is 'assistant'; expected 'user' or 'model'"),
        ({"role": "user", "content": "x"}, "it has 'content'; expected Gemini's 'parts'"),
        ({"role": "user", "parts": "x"}, "parts is a string; expected a list of parts"),
        ({"role": "user", "parts": [{"type": "text", "text": "x"}]}, r"parts\[0\] has a 'type'"),
        ({"role": "user", "parts": [{"text": "x", "fileData": {}}]}, r"parts\[0\] has text and fileData"),
        ({"role": "user", "parts": [{"text": 5}]}, r"parts\[0\].text is a number"),
        ({"role": "model", "parts": [{"functionCall": {"args": {}}}]}, r"parts\[0\].functionCall.name is missing"),
        (answer_with("plain"), r"parts\[0\].functionResponse.response is a string; expected an object"),
    ],
)
def test_what_is_wrong_with_a_content_is_named(native: Native, reason: str) -> None:
    with pytest.raises(BadMessageError, match=reason):
        GEMINI.read(native)


def test_an_interrupted_call_gets_an_object_in_its_spelling_and_its_place() -> None:
    asked = asking("Read", "Bash")
    shown = repaired(GEMINI, [GO, asked, {"role": "user", "parts": answering("Bash")["parts"]}, MORE])
    missing = {"functionResponse": {"name": "Read", "response": {"error": MISSING_RESULT}}}
    assert shown == [GO, asked, {"role": "user", "parts": [missing, *answering("Bash")["parts"]]}, MORE]
    spelled = {"role": "model", "parts": [{"function_call": {"id": "c", "name": "Read"}}]}
    [*_, last] = repaired(GEMINI, [GO, spelled])
    assert last["parts"] == [{"function_response": {"id": "c", "name": "Read", "response": {"error": MISSING_RESULT}}}]
    dumped = {"role": "model", "parts": [{"text": None, "functionCall": {"name": "Read"}}]}
    [*_, last] = repaired(GEMINI, [GO, dumped])
    assert last["parts"] == [missing]


def test_responses_recorded_one_by_one_become_one_content() -> None:
    shown = repaired(GEMINI, [GO, asking("a", "b"), answering("a"), answering("b"), MORE])
    assert shown == [GO, asking("a", "b"), answering("a", "b"), MORE]


REPLY: Native = {"role": "model", "parts": [{"text": "hi"}]}


@pytest.mark.parametrize(
    "natives",
    [
        [GO, MORE, REPLY, REPLY, MORE],
        [GO, REPLY, asking("a"), answering("a"), asking("b"), answering("b"), MORE, GO],
        [GO, asking("a"), {"role": "user", "parts": [{"text": "more"}, *answering("a")["parts"], IMAGE]}, MORE],
        [GO, asking("a", "b"), {"role": "user", "parts": [*answering("a")["parts"], IMAGE, *answering("b")["parts"]]}],
    ],
)
def test_one_content_stays_one_content(natives: list[Native]) -> None:
    assert repaired(GEMINI, natives) == natives
    assert violations("gemini", natives) == []


def test_responses_that_have_to_be_completed_get_a_content_without_other_parts() -> None:
    mixed = {"role": "user", "parts": [{"text": "more"}, *answering("b")["parts"], IMAGE]}
    [*_, responses, others] = repaired(GEMINI, [GO, asking("a", "b"), mixed])
    assert [part["functionResponse"]["name"] for part in responses["parts"]] == ["a", "b"]
    assert others == {"role": "user", "parts": [{"text": "more"}, IMAGE]}
    one_by_one = [GO, asking("a", "b"), answering("a"), {"role": "user", "parts": [*answering("b")["parts"], IMAGE]}]
    apart = [GO, asking("a", "b"), answering("a", "b"), {"role": "user", "parts": [IMAGE]}]
    assert repaired(GEMINI, one_by_one) == apart


def test_open_calls_in_two_contents_become_one_content_before_their_responses() -> None:
    joined = {"role": "model", "parts": [*asking("a", "b")["parts"], *REPLY["parts"]]}
    natives = [GO, asking("a"), asking("b"), REPLY, answering("a", "b")]
    assert repaired(GEMINI, natives) == [GO, joined, answering("a", "b")]


def test_a_response_takes_the_id_of_its_call() -> None:
    asked = {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "a"}}]}
    [*_, last] = repaired(GEMINI, [GO, asked, answering("a")])
    assert last["parts"][0]["functionResponse"]["id"] == "c1"


def test_a_response_without_its_call_becomes_text_with_its_media() -> None:
    orphan = {
        "role": "user",
        "parts": [{"functionResponse": {"name": "a", "response": {"output": "x"}, "parts": [IMAGE]}}],
    }
    text = "[Result of a tool call that is no longer shown]\nx"
    assert repaired(GEMINI, [orphan]) == [{"role": "user", "parts": [{"text": text}, IMAGE]}]


def test_a_list_that_begins_with_the_model_gets_a_content_before_it() -> None:
    reply = {"role": "model", "parts": [{"text": "hi"}]}
    assert repaired(GEMINI, [reply]) == [{"role": "user", "parts": [{"text": ASSISTANT_FIRST}]}, reply]


def test_what_a_recorder_added_and_empty_parts_are_not_sent() -> None:
    natives = [
        {"role": "system", "parts": [{"text": "Be brief."}]},
        GO,
        {"role": "model", "parts": [{"text": ""}, {}, {"text": "hm", "thought": True}], "finishReason": "STOP"},
        {"role": "model"},
        {"role": "model", "parts": [{"text": "hi"}, {"text": "", "thoughtSignature": "c2ln"}], "usageMetadata": {}},
    ]
    reply = {"role": "model", "parts": [{"text": "hi"}, {"text": "", "thoughtSignature": "c2ln"}]}
    assert repaired(GEMINI, natives) == [GO, reply]


@settings(max_examples=examples(100), suppress_health_check=list(HealthCheck))
@given(st.data())
def test_each_signature_stays_on_its_part_byte_for_byte(data: st.DataObject) -> None:
    natives = data.draw(conversations("gemini", broken=True))
    shown = repaired(GEMINI, natives)
    assert violations("gemini", shown) == []
    recorded = [part for native in natives if native["role"] == "model" for part in native["parts"]]
    signed = [part for part in recorded if "thoughtSignature" in part or "thought_signature" in part]
    assert [
        part for native in shown if native["role"] == "model" for part in native["parts"] if part in signed
    ] == signed
