"""Reading, replacing and assembling Anthropic messages, by example."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from contextstash.messages import get_format
from contextstash.messages.repair import MISSING_RESULT, repaired
from contextstash_storage.errors import BadInputError, BadMessageError
from contextstash_storage.records import Native, Usage
from tests.support.provider_rules import violations

ANTHROPIC = get_format("anthropic")
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


def user(*content: Any) -> Native:
    return {"role": "user", "content": list(content)}


def assistant(*content: Any, **keys: Any) -> Native:
    return {**keys, "role": "assistant", "content": list(content)}


def text(said: str) -> Native:
    return {"type": "text", "text": said}


def use(call_id: str) -> Native:
    return {"type": "tool_use", "id": call_id, "name": "Read", "input": {"file_path": "src/a.py"}}


def result(call_id: str, content: Any = "done") -> Native:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def kinds(native: Native) -> list[str]:
    return [block.type for block in ANTHROPIC.read(native).blocks]


def test_a_whole_reply_is_read_with_its_usage_model_and_id() -> None:
    reply = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-4-5",
        "content": [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, text("hi"), use("toolu_1")],
        "stop_reason": "tool_use",
        "usage": {
            "input_tokens": 10,
            "cache_read_input_tokens": 100,
            "cache_creation_input_tokens": 5,
            "output_tokens": 7,
        },
    }
    found = ANTHROPIC.read(reply)
    assert [block.type for block in found.blocks] == ["thinking", "text", "tool_call"]
    assert found.texts == ("hm", "hi", '{"file_path":"src/a.py"}')
    assert found.usage == Usage(prompt_tokens=115, completion_tokens=7, cached_tokens=100, cache_write_tokens=5)
    assert (found.role, found.model, found.group) == ("assistant", "claude-opus-4-5", "msg_1")
    call = found.blocks[2]
    assert (call.call_id, call.tool, call.argument) == ("toolu_1", "Read", "src/a.py")


def test_a_tool_result_is_one_block_with_its_images_and_documents_after_it() -> None:
    notes = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "notes"}}
    native = user(result("toolu_1", [text("one"), IMAGE, text("two"), notes]), IMAGE)
    found = ANTHROPIC.read(native)
    assert [block.type for block in found.blocks] == ["tool_result", "image", "document", "image"]
    assert [block.call_id for block in found.blocks] == ["toolu_1", "toolu_1", "toolu_1", None]
    assert found.texts[0] == "one\ntwo"
    assert found.blocks[0].tool is None


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        (IMAGE, "image"),
        ({"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}}, "document"),
        ({"type": "redacted_thinking", "data": "ZGF0YQ"}, "thinking"),
        (
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
            "tool_call",
        ),
        ({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}, "opaque"),
        ({"type": "search_result", "source": "a", "title": "b", "content": [text("c")]}, "opaque"),
        ({"type": "compaction", "content": None}, "opaque"),
        ({"type": "block_of_tomorrow", "payload": [1]}, "opaque"),
    ],
)
def test_every_kind_of_block_is_read(block: Native, kind: str) -> None:
    assert kinds(assistant(block)) == [kind]


def test_an_error_result_is_marked_as_an_error() -> None:
    assert ANTHROPIC.read(user({**result("a"), "is_error": True})).blocks[0].is_error


@pytest.mark.parametrize(
    ("native", "complaint"),
    [
        ({"content": "hi"}, "role is missing or null; expected 'user' or 'assistant'."),
        ({"role": "robot", "content": "hi"}, "role is 'robot'"),
        ({"role": "user"}, "content is missing or null"),
        ({"role": "user", "content": [3]}, r"content\[0\] is a number"),
        ({"role": "user", "content": [{"text": "hi"}]}, r"content\[0\].type is missing"),
        (user(text("a"), {"type": "text", "text": 3}), r"content\[1\].text is a number"),
        (user({"type": "tool_result", "content": "x"}), "tool_use_id is missing"),
        (
            user({"type": "tool_result", "tool_use_id": "a", "content": 3}),
            "content is a number",
        ),
        (user({"type": "function_call"}), "a 'function_call' of another format"),
    ],
)
def test_a_wrong_message_is_refused_by_naming_the_field(native: Native, complaint: str) -> None:
    with pytest.raises(BadMessageError, match=complaint):
        ANTHROPIC.read(native)


def test_replacing_keeps_ids_errors_breakpoints_order_and_everything_else() -> None:
    marked = {**result("b", [text("long"), IMAGE]), "is_error": True, "cache_control": {"type": "ephemeral"}}
    native = user(result("a", "long"), marked, text("and now?"))
    before = copy.deepcopy(native)
    changed = ANTHROPIC.replace(native, {0: "short a", 1: "short b"})
    assert changed == user(result("a", "short a"), {**marked, "content": [text("short b")]}, text("and now?"))
    assert native == before


def test_only_tool_results_can_be_replaced() -> None:
    with pytest.raises(BadInputError, match="Block 1 of this message is not a tool result"):
        ANTHROPIC.replace(user(result("a"), text("hi")), {1: "no"})


def test_the_pieces_of_a_reply_become_one_message_and_its_results_the_next() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    natives = [
        {"role": "user", "content": "go"},
        assistant(thought, id="msg_1", usage={"input_tokens": 5, "output_tokens": 1}),
        assistant(use("a"), id="msg_1", stop_reason="tool_use"),
        user(result("a")),
        assistant(use("b"), id="msg_1"),
        user(result("b")),
        assistant(text("ok"), id="msg_2"),
    ]
    assert repaired(ANTHROPIC, natives) == [
        {"role": "user", "content": "go"},
        assistant(thought, use("a"), use("b")),
        user(result("a"), result("b")),
        assistant(text("ok")),
    ]


def test_results_come_first_and_the_users_text_after_them() -> None:
    natives = [
        user(text("go")),
        assistant(use("a"), use("b")),
        user(text("wait")),
        user(result("b")),
        user(text("x"), result("a")),
    ]
    assert repaired(ANTHROPIC, natives)[2] == user(result("b"), result("a"), text("wait"), text("x"))


def test_a_result_recorded_before_its_call_is_moved_after_it() -> None:
    natives = [user(text("go")), user(result("a")), assistant(use("a"), id="m1"), assistant(text("ok"))]
    assert repaired(ANTHROPIC, natives) == [
        user(text("go")),
        assistant(use("a")),
        user(result("a")),
        assistant(text("ok")),
    ]


def test_a_call_without_a_result_gets_one_and_a_result_without_a_call_becomes_text() -> None:
    natives = [user(result("gone", "42 files")), assistant(use("a")), user(text("never mind"))]
    shown = repaired(ANTHROPIC, natives)
    assert shown[0] == user(text("[Result of a tool call that is no longer shown]\n42 files"))
    missing = {**result("a", MISSING_RESULT), "is_error": True}
    assert shown[2] == user(missing, text("never mind"))
    assert violations("anthropic", shown) == []


def test_system_messages_and_empty_texts_and_unsigned_thinking_are_left_out() -> None:
    natives = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "go"},
        assistant({"type": "thinking", "thinking": "cut off", "signature": ""}, text(""), text("ok")),
        {"role": "user", "content": " \n"},
    ]
    assert repaired(ANTHROPIC, natives) == [{"role": "user", "content": "go"}, assistant(text("ok"))]


def test_a_provider_tool_call_is_kept_only_with_its_result_or_at_the_end() -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    go = user(text("go"))
    whole = [go, assistant(search, found, text("ok"))]
    paused = [go, assistant(text("looking"), search)]
    assert repaired(ANTHROPIC, whole) == whole
    assert repaired(ANTHROPIC, paused) == paused
    assert repaired(ANTHROPIC, [*paused, user(text("stop"))])[1] == assistant(text("looking"))
    assert repaired(ANTHROPIC, [go, assistant(found, text("ok"))])[1] == assistant(text("ok"))


@pytest.mark.parametrize("key", ["tool_id", "toolId"])
def test_a_provider_tool_call_stays_open_while_a_tool_that_it_called_is_answered(key: str) -> None:
    run = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {"code": "x"}}
    called = {**use("a"), "caller": {"type": "code_execution_20250825", key: "srvtoolu_1"}}
    natives = [user(text("go")), assistant(run, called), user(result("a"))]
    assert repaired(ANTHROPIC, natives) == natives
    assert violations("anthropic", natives) == []


@pytest.mark.parametrize("summary", [{"content": "All done so far."}, {"content": None, "signature": "c2ln"}])
def test_a_list_may_begin_with_the_providers_own_summary_which_goes_back_verbatim(summary: Native) -> None:
    block = {"type": "compaction", **summary, "encrypted_content": "Z0FB", "tool_changes": [{"a": 1}]}
    natives = [assistant(block), user(text("go on")), assistant(text("ok"))]
    assert violations("anthropic", natives) == []
    assert repaired(ANTHROPIC, natives) == natives


def test_an_empty_summary_of_the_provider_is_left_out() -> None:
    natives = [user(text("go")), assistant({"type": "compaction", "content": ""}, text("ok"))]
    assert repaired(ANTHROPIC, natives)[1] == assistant(text("ok"))


def test_nothing_is_left_of_a_message_with_only_thinking() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    redacted = {"type": "redacted_thinking", "data": "ZGF0"}
    assert ANTHROPIC.without_thinking(assistant(thought, redacted)) is None
    assert ANTHROPIC.without_thinking(assistant(thought, text("ok"), redacted, use("a"))) == assistant(
        text("ok"), use("a")
    )
    whole = assistant(text("ok"))
    assert ANTHROPIC.without_thinking(whole) is whole
