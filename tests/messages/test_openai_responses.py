"""Reading, replacing and assembling Responses items, by example."""

from __future__ import annotations

from typing import Any

import pytest

from contextstash.messages import get_format
from contextstash.messages.repair import MISSING_RESULT, repaired
from contextstash_storage.errors import BadInputError, BadMessageError
from contextstash_storage.records import Native
from tests.support.provider_rules import violations

RESPONSES = get_format("openai-responses")
USER: Native = {"role": "user", "content": "go"}
REASONING: Native = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "Z0FB"}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}


def call(call_id: str, kind: str = "function_call") -> Native:
    if kind == "custom_tool_call":
        return {"type": kind, "call_id": call_id, "name": "apply_patch", "input": "*** Update File: a.py\n"}
    return {"type": kind, "call_id": call_id, "name": "run", "arguments": '{"cmd": "ls"}'}


def output(call_id: str, content: Any = "done", kind: str = "function_call_output") -> Native:
    return {"type": kind, "call_id": call_id, "output": content}


@pytest.mark.parametrize(
    ("native", "role", "kinds", "texts"),
    [
        (USER, "user", ["text"], ("go",)),
        (
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "x"}]},
            "system",
            ["text"],
            ("x",),
        ),
        (
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "x"}, {"type": "refusal", "refusal": "no"}],
            },
            "assistant",
            ["text", "text"],
            ("x", "no"),
        ),
        (
            {"role": "user", "content": [IMAGE, {"type": "input_file", "filename": "a.pdf"}]},
            "user",
            ["image", "document"],
            ("", "a.pdf"),
        ),
        (REASONING, "assistant", ["thinking"], ("",)),
        (
            {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "a"}],
                "content": [{"type": "reasoning_text", "text": "b"}],
            },
            "assistant",
            ["thinking"],
            ("a\nb",),
        ),
        ({"type": "reasoning", "summary": [], "content": None}, "assistant", ["thinking"], ("",)),
        (call("a"), "assistant", ["tool_call"], ('{"cmd": "ls"}',)),
        (call("a", "custom_tool_call"), "assistant", ["tool_call"], ("*** Update File: a.py\n",)),
        (
            output("a", [{"type": "input_text", "text": "x"}, IMAGE]),
            "tool",
            ["tool_result", "image"],
            ("x", ""),
        ),
        (output("a", "x", "custom_tool_call_output"), "tool", ["tool_result"], ("x",)),
        (
            {"type": "web_search_call", "id": "ws_1", "action": {"query": "x"}},
            "assistant",
            ["tool_call"],
            ('{"query":"x"}',),
        ),
        (
            {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["q"]},
            "assistant",
            ["tool_call"],
            ('{"queries":["q"]}',),
        ),
        (
            {"type": "compaction", "encrypted_content": "Z0"},
            "assistant",
            ["opaque"],
            ('{"type":"compaction","encrypted_content":"Z0"}',),
        ),
        (
            {"type": "item_of_tomorrow", "a": 1},
            "assistant",
            ["opaque"],
            ('{"type":"item_of_tomorrow","a":1}',),
        ),
        (
            {"type": "shell_call_output", "call_id": "a", "output": [{"stdout": "x", "stderr": "y"}]},
            "tool",
            ["tool_result"],
            ("x\ny",),
        ),
    ],
)
def test_every_kind_of_item_is_read(native: Native, role: str, kinds: list[str], texts: tuple[str, ...]) -> None:
    found = RESPONSES.read(native)
    assert found.role == role
    assert [block.type for block in found.blocks] == kinds
    assert found.texts == texts


def test_calls_have_names_and_main_arguments() -> None:
    shell = {"type": "local_shell_call", "call_id": "b", "action": {"command": ["bash", "-lc", "ls -l"]}}
    named = {**call("c"), "namespace": "mcp__github", "name": "_fetch_pr"}
    blocks = [RESPONSES.read(native).blocks[0] for native in (call("a"), shell, named)]
    assert [(block.tool, block.argument) for block in blocks] == [
        ("run", "ls"),
        ("local_shell", "ls -l"),
        ("mcp__github_fetch_pr", "ls"),
    ]


def test_calls_of_the_providers_own_tools_need_no_answer() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}}
    assert RESPONSES.read(search).blocks[0].call_id is None
    assert repaired(RESPONSES, [USER, search]) == [USER, search]


def test_a_generated_picture_is_not_counted_as_text() -> None:
    picture = {"type": "image_generation_call", "id": "ig_1", "result": "A" * 90_000}
    assert len(RESPONSES.read(picture).texts[0]) < 200


def test_a_screenshot_answers_its_call_but_cannot_be_replaced_by_text() -> None:
    shot = output("a", {"type": "computer_screenshot", "image_url": "x"}, "computer_call_output")
    block = RESPONSES.read(shot).blocks[0]
    assert (block.type, block.call_id) == ("image", "a")
    with pytest.raises(BadInputError, match="Block 0 of this message is not a tool result"):
        RESPONSES.replace(shot, {0: "no"})


@pytest.mark.parametrize(
    ("native", "complaint"),
    [
        ({"content": "hi"}, "neither 'type' nor 'role'"),
        ({"output": [USER]}, "record the items of its `output` one by one"),
        ({"type": "message", "role": "robot", "content": ""}, "role is 'robot'; expected assistant, user"),
        ({"role": "user"}, "content is missing or null"),
        ({"type": "function_call", "name": "f"}, "call_id is missing"),
        ({"type": "function_call_output", "output": "x"}, "call_id is missing"),
        (output("a", 5), "output is a number"),
        ({"type": "reasoning", "summary": "x"}, "summary is a string; expected a list"),
        ({"role": "user", "content": [{"type": "tool_use"}]}, "a 'tool_use' of another format"),
    ],
)
def test_a_wrong_item_is_refused_by_naming_the_field(native: Native, complaint: str) -> None:
    with pytest.raises(BadMessageError, match=complaint):
        RESPONSES.read(native)


def test_replacing_keeps_the_form_of_the_output_and_everything_else() -> None:
    assert RESPONSES.replace({**output("a"), "id": "fc_1"}, {0: "short"}) == {
        **output("a", "short"),
        "id": "fc_1",
    }
    parts = output("a", [{"type": "input_text", "text": "long"}, IMAGE])
    assert RESPONSES.replace(parts, {0: "short"}) == output("a", [{"type": "input_text", "text": "short"}])
    shell = {
        "type": "shell_call_output",
        "call_id": "a",
        "output": [{"stdout": "x", "outcome": {"type": "timeout"}}],
    }
    assert RESPONSES.replace(shell, {0: "short"})["output"] == [
        {"stdout": "short", "stderr": "", "outcome": {"type": "timeout"}}
    ]


def test_missing_outputs_come_after_the_calls_made_together_each_of_its_type() -> None:
    natives = [USER, REASONING, call("a"), call("b", "custom_tool_call"), call("c"), output("c"), USER]
    assert repaired(RESPONSES, natives) == [
        USER,
        REASONING,
        call("a"),
        call("b", "custom_tool_call"),
        call("c"),
        output("a", MISSING_RESULT),
        output("b", MISSING_RESULT, "custom_tool_call_output"),
        output("c"),
        USER,
    ]


def test_an_output_is_converted_to_the_type_of_its_call() -> None:
    answer = {"type": "function_call_output", "call_id": "a", "output": "gone"}
    shown = repaired(RESPONSES, [USER, call("a", "custom_tool_call"), answer])
    assert shown[-1] == output("a", "gone", "custom_tool_call_output")


def test_an_output_without_its_call_becomes_the_users_text() -> None:
    [shown] = repaired(RESPONSES, [output("gone", [{"type": "input_text", "text": "42 files"}, IMAGE])])
    told = "[Result of a tool call that is no longer shown]\n42 files"
    assert shown == {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": told}, IMAGE],
    }


def test_reasoning_that_nothing_follows_is_left_out_with_its_computer_call() -> None:
    click = {"type": "computer_call", "call_id": "a", "action": {"type": "click"}}
    assert repaired(RESPONSES, [USER, REASONING, click, USER, REASONING]) == [USER, USER]


def test_fields_of_recorders_are_left_out_and_a_missing_summary_is_added() -> None:
    natives = [
        {**USER, "response_id": "resp_1"},
        {"type": "reasoning", "id": "rs_1", "status": None},
        {**call("a"), "status": "completed", "usage": {"input_tokens": 5, "output_tokens": 1}},
        output("a"),
    ]
    shown = repaired(RESPONSES, natives)
    assert shown == [
        USER,
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {**call("a"), "status": "completed"},
        output("a"),
    ]
    assert violations("openai-responses", shown) == []


def test_a_reply_id_groups_items() -> None:
    assert RESPONSES.read({**call("a"), "response_id": "resp_1"}).group == "resp_1"


def test_without_its_reasoning_a_call_loses_the_id_by_which_the_api_would_miss_it() -> None:
    """Calls of the provider's own tools need their ids, and cannot stay."""
    made = {**call("a"), "id": "fc_1"}
    assert RESPONSES.without_thinking(REASONING) is None
    assert RESPONSES.without_thinking(made) == call("a")
    for kept in (call("a"), output("a"), USER, {"type": "mcp_approval_request", "id": "mcpr_1"}):
        assert RESPONSES.without_thinking(kept) == kept
    assert RESPONSES.without_thinking({"type": "web_search_call", "id": "ws_1"}) is None


def test_a_summary_of_the_provider_is_sent_back_verbatim() -> None:
    natives = [
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "Z0FB"},
        USER,
        REASONING,
        call("a"),
        output("a"),
    ]
    assert repaired(RESPONSES, natives) == natives
    assert violations("openai-responses", natives) == []
