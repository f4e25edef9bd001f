"""Making a valid request of the recorded messages of each format, by example."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from contextstash.messages.detection import detect_format, get_format
from contextstash.messages.rules import MISSING_RESULT, render
from contextstash_storage.errors import BadMessageError
from contextstash_storage.records import Native
from tests.messages.natives import (
    ANTHROPIC,
    CHAT,
    GEMINI,
    REASONING,
    RESPONSES,
    answering,
    asked,
    assistant,
    call_item,
    calling,
    chat_calls,
    chat_result,
    output_item,
    replied,
    text,
    thinking,
    tool_result,
    tool_use,
    user,
)
from tests.support.conversations import FORMAT_NAMES, conversations, json_objects
from tests.support.effort import examples
from tests.support.provider_rules import violations

GO: Native = {"role": "user", "content": "go"}
START = user(text("go"))
OK = assistant(text("ok"))
ASKED, MORE = asked({"text": "go"}), asked({"text": "more"})
HI = replied({"text": "hi"})

SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
RUN = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {"code": "x"}}
SUMMARY = {"type": "compaction", "encrypted_content": "Z0FB", "tool_changes": [{"a": 1}]}
WEB_SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}}
SIGNED_END = replied({"text": "hi"}, {"text": "", "thoughtSignature": "c2ln"})

ORPHAN = "[Result of a tool call that is no longer shown]\n42 files"


def called_by(key: str) -> Native:
    return {**tool_use("a"), "caller": {"type": "code_execution_20250825", key: "srvtoolu_1"}}


def piece(*content: Native, **keys: Any) -> Native:
    """A piece of a reply of Anthropic, as clients record them."""
    return assistant(*content, id="msg_1", **keys)


def response(name: str, call_id: str | None = None, **said: str) -> Native:
    return {"functionResponse": {**({"id": call_id} if call_id else {}), "name": name, "response": said}}


USES = assistant(tool_use("a"), tool_use("b"))
USAGE = {"input_tokens": 5, "output_tokens": 1}
THINKS, USES_A = piece(thinking(), usage=USAGE), piece(tool_use("a"), stop_reason="tool_use")
ANSWER, ANSWER_B = user(tool_result("a")), user(tool_result("b"))
MISSING_A = {**tool_result("a", MISSING_RESULT), "is_error": True}
CALL_0, CALL_AB, RESULT_B = chat_calls("call_0"), chat_calls("a", "b"), chat_result("b")
ITEM, CUSTOM, OUTPUT = call_item("a"), call_item("a", "custom_tool_call"), output_item("a")
PROGRAM = {"type": "program", "id": "prg_1", "call_id": "p", "code": "tools.run()", "fingerprint": "Z0FB"}
PROGRAM_OUTPUT = {"type": "program_output", "id": "po_1", "call_id": "p", "result": "2", "status": "completed"}
CALLED = {**ITEM, "caller": {"type": "program", "caller_id": "p"}}
COMPACTION = {"type": "compaction", "id": "cmp_1", "encrypted_content": "Z0FB"}
MISSING_B = output_item("b", MISSING_RESULT, "custom_tool_call_output")
BRIEF: Native = {"role": "system", "content": "be brief"}
BRIEF_ONCE: Native = {**BRIEF, "clear_at": "next_user_message"}
BRIEF_PARTS: Native = {"role": "system", "parts": [{"text": "Be brief."}]}
COMPUTER = {"type": "computer_call", "call_id": "a", "action": {"type": "click"}}
ITEMS = [GO, REASONING, ITEM, call_item("b", "custom_tool_call"), call_item("c")]
SAID: Native = {"role": "assistant", "content": "hi", "refusal": None}
CHAT_USAGE = {"prompt_tokens": 5, "completion_tokens": 1}
NOT_SENT: Native = {"annotations": [], "tool_calls": None, "function_call": None, "audio": None, "usage": CHAT_USAGE}
BARE_REASONING = {"type": "reasoning", "id": "rs_1"}
DONE_ITEM = {**ITEM, "status": "completed"}
NAMED = replied({"functionCall": {"id": "c1", "name": "a"}})
SPELLED = replied({"function_call": {"id": "c", "name": "Read"}})
DONE_B = answering("Bash")["parts"]
THOUGHT = replied({"text": ""}, {}, {"text": "hm", "thought": True}, finishReason="STOP")

VALID: dict[str, tuple[str, list[Native]]] = {
    "system messages behind the user's": (ANTHROPIC, [START, BRIEF, assistant(tool_use("a")), ANSWER, BRIEF_ONCE]),
    "one at the end, whose result is to come": (ANTHROPIC, [START, assistant(text("looking"), SEARCH)]),
    "one open while a tool that it called is answered": (
        ANTHROPIC,
        [START, assistant(RUN, called_by("tool_id")), ANSWER],
    ),
    "Anthropic's summary at the start": (
        ANTHROPIC,
        [assistant({**SUMMARY, "content": "All done so far."}), user(text("go on")), OK],
    ),
    "reasoning that its provider requires": (CHAT, [GO, chat_calls("a", reasoning_content="hm"), chat_result("a")]),
    "OpenAI's summary": (RESPONSES, [COMPACTION, GO, REASONING, ITEM, OUTPUT]),
    "a program with a call that it made": (RESPONSES, [GO, REASONING, PROGRAM, CALLED, OUTPUT, PROGRAM_OUTPUT]),
    "one that waits for the result": (RESPONSES, [GO, REASONING, PROGRAM, CALLED, OUTPUT]),
}


@pytest.mark.parametrize("case", VALID)
def test_a_list_that_providers_accept_goes_out_as_it_came(case: str) -> None:
    name, natives = VALID[case]
    assert render(get_format(name), natives) == natives
    assert violations(name, natives) == []


BROKEN: dict[str, tuple[str, list[Native], list[Native]]] = {
    "the pieces of a reply become one message, and its results the next": (
        ANTHROPIC,
        [GO, THINKS, USES_A, ANSWER, piece(tool_use("b")), ANSWER_B, assistant(text("ok"), id="msg_2")],
        [GO, assistant(thinking(), tool_use("a"), tool_use("b")), user(tool_result("a"), tool_result("b")), OK],
    ),
    "results come first, and the user's text after them": (
        ANTHROPIC,
        [START, USES, user(text("wait")), ANSWER_B, user(text("x"), tool_result("a"))],
        [START, USES, user(tool_result("b"), tool_result("a"), text("wait"), text("x"))],
    ),
    "a call without a result gets one, and a result without a call becomes text (Anthropic)": (
        ANTHROPIC,
        [user(tool_result("gone", "42 files")), assistant(tool_use("a")), user(text("never mind"))],
        [user(text(ORPHAN)), assistant(tool_use("a")), user(MISSING_A, text("never mind"))],
    ),
    "system messages, empty texts and unsigned thinking are left out": (
        ANTHROPIC,
        [BRIEF, GO, assistant(thinking("cut off", ""), text(""), text("ok")), {"role": "user", "content": " \n"}],
        [GO, OK],
    ),
    "a system message goes behind what the user said, and is the user's if that is nothing": (
        ANTHROPIC,
        [GO, BRIEF, user(text("x")), OK, BRIEF, OK],
        [user(text("go"), text("x")), BRIEF, OK, {**BRIEF, "role": "user"}, OK],
    ),
    "a call of the provider's own tool goes if the user spoke in place of its result": (
        ANTHROPIC,
        [START, assistant(text("looking"), SEARCH), user(text("stop"))],
        [START, assistant(text("looking")), user(text("stop"))],
    ),
    "results are put directly after their call": (
        CHAT,
        [GO, CALL_AB, GO, RESULT_B, chat_calls("c"), chat_result("a"), chat_result("c")],
        [GO, CALL_AB, RESULT_B, chat_result("a"), GO, chat_calls("c"), chat_result("c")],
    ),
    "fields of replies are left out of a request": (CHAT, [GO, {**SAID, **NOT_SENT}], [GO, SAID]),
    "a call without a result gets one, and a result without a call becomes text (Chat Completions)": (
        CHAT,
        [chat_result("a", "42 files"), CALL_AB, RESULT_B, GO],
        [{"role": "user", "content": ORPHAN}, CALL_AB, RESULT_B, chat_result("a", MISSING_RESULT), GO],
    ),
    "an empty reply": (CHAT, [GO, {"role": "assistant", "content": ""}], [GO]),
    "missing outputs come after the calls made together, each of its type": (
        RESPONSES,
        [*ITEMS, output_item("c"), GO],
        [*ITEMS, output_item("a", MISSING_RESULT), MISSING_B, output_item("c"), GO],
    ),
    "an output is converted to the type of its call": (
        RESPONSES,
        [GO, CUSTOM, output_item("a", "gone")],
        [GO, CUSTOM, output_item("a", "gone", "custom_tool_call_output")],
    ),
    "a program that was recorded twice is sent once": (
        RESPONSES,
        [GO, REASONING, PROGRAM, PROGRAM, CALLED, OUTPUT, PROGRAM_OUTPUT],
        [GO, REASONING, PROGRAM, CALLED, OUTPUT, PROGRAM_OUTPUT],
    ),
    "reasoning that nothing follows is left out with its computer call": (
        RESPONSES,
        [GO, REASONING, COMPUTER, GO, REASONING],
        [GO, GO],
    ),
    "fields of recorders are left out, and a missing summary is added": (
        RESPONSES,
        [{**GO, "response_id": "resp_1"}, {**BARE_REASONING, "status": None}, {**DONE_ITEM, "usage": USAGE}, OUTPUT],
        [GO, {**BARE_REASONING, "summary": []}, DONE_ITEM, OUTPUT],
    ),
    "an interrupted call gets an object in its place": (
        GEMINI,
        [ASKED, calling("Read", "Bash"), answering("Bash"), MORE],
        [ASKED, calling("Read", "Bash"), asked(response("Read", error=MISSING_RESULT), *DONE_B), MORE],
    ),
    "and in its spelling": (
        GEMINI,
        [ASKED, SPELLED],
        [ASKED, SPELLED, asked({"function_response": response("Read", "c", error=MISSING_RESULT)["functionResponse"]})],
    ),
    "responses recorded one by one become one content": (
        GEMINI,
        [ASKED, calling("a", "b"), answering("a"), answering("b"), MORE],
        [ASKED, calling("a", "b"), answering("a", "b"), MORE],
    ),
    "a response takes the id of its call": (
        GEMINI,
        [ASKED, NAMED, answering("a")],
        [ASKED, NAMED, asked(response("a", "c1", output="a done"))],
    ),
    "what a recorder added and empty parts are not sent": (
        GEMINI,
        [BRIEF_PARTS, ASKED, THOUGHT, {"role": "model"}, {**SIGNED_END, "usageMetadata": {}}, BRIEF_PARTS],
        [ASKED, SIGNED_END, asked({"text": "<system-reminder>\nBe brief.\n</system-reminder>"})],
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_list_becomes_a_valid_request(case: str) -> None:
    name, natives, expected = BROKEN[case]
    assert violations(name, natives)
    assert render(get_format(name), natives) == expected
    assert violations(name, expected) == []


@settings(max_examples=examples(100), suppress_health_check=list(HealthCheck))
@given(st.data())
def test_each_signature_of_gemini_stays_on_its_part_byte_for_byte(data: st.DataObject) -> None:
    natives = data.draw(conversations("gemini", broken=True))
    shown = render(get_format(GEMINI), natives)
    assert violations("gemini", shown) == []
    recorded = [part for native in natives if native["role"] == "model" for part in native["parts"]]
    signed = [part for part in recorded if "thoughtSignature" in part or "thought_signature" in part]
    sent = [part for native in shown if native["role"] == "model" for part in native["parts"]]
    assert [part for part in sent if part in signed] == signed


DETAIL = {"type": "reasoning.text", "text": "hm", "format": "anthropic-claude-v1"}
ENCRYPTED = {"type": "reasoning.encrypted", "data": "Z0FB", "format": "google-gemini-v1"}


@pytest.mark.parametrize(
    "carrier", [{"thinking_blocks": [thinking()], "reasoning_content": "hm"}, {"reasoning_details": [DETAIL]}]
)
def test_the_signed_thinking_of_a_claude_behind_a_gateway_is_read_and_can_be_left_out(carrier: Native) -> None:
    chat, native = get_format(CHAT), chat_calls("a", **carrier)
    found = chat.read(native)
    assert (found.blocks[0].type, found.texts[0]) == ("thinking", "hm")
    assert chat.is_own(native)
    assert render(chat, [GO, native, chat_result("a")])[1] == native
    assert chat.without_thinking(native) == chat_calls("a")
    assert chat.without_thinking({"role": "assistant", "content": None, **carrier}) is None


@pytest.mark.parametrize("carrier", [{"reasoning_content": "hm"}, {"reasoning_details": [ENCRYPTED]}])
def test_reasoning_that_its_provider_requires_is_never_left_out(carrier: Native) -> None:
    native = chat_calls("a", **carrier)
    assert get_format(CHAT).without_thinking(native) == native


def test_nothing_is_left_of_a_message_with_only_thinking() -> None:
    without = get_format(ANTHROPIC).without_thinking
    redacted = {"type": "redacted_thinking", "data": "ZGF0"}
    assert without(assistant(thinking(), redacted)) is None
    mixed = assistant(thinking(), text("ok"), redacted, tool_use("a"))
    assert without(mixed) == assistant(text("ok"), tool_use("a"))
    assert without(OK) is OK


def test_without_its_reasoning_a_call_loses_the_id_by_which_the_api_would_miss_it() -> None:
    """Calls of the provider's own tools need their ids, and cannot stay, nor can programs."""
    without = get_format(RESPONSES).without_thinking
    assert without(REASONING) is None
    assert without({**CALLED, "id": "fc_1"}) == without(CALLED) == ITEM
    for kept in (call_item("a"), output_item("a"), GO, {"type": "mcp_approval_request", "id": "mcpr_1"}):
        assert without(kept) == kept
    assert without(WEB_SEARCH) is without(PROGRAM) is without(PROGRAM_OUTPUT) is None


MARK = {"cache_control": {"type": "ephemeral"}}


def test_of_the_cache_breakpoints_two_are_sent_and_those_inside_a_tool_result_count_too() -> None:
    """Agents set one at the end of each request; two are left to tools and system prompt."""
    natives = [each for turn in range(6) for each in (user({**text(f"question {turn}"), **MARK}), OK)]
    shown = render(get_format(ANTHROPIC), natives)
    assert [MARK.keys() <= native["content"][0].keys() for native in shown[::2]] == [False] * 4 + [True] * 2
    part = {**text("lines"), **MARK}
    natives = [user(part), assistant(tool_use("a")), user({**tool_result("a", [part] * 3), **MARK}, part)]
    assert violations(ANTHROPIC, natives) == ["The list has 6 cache breakpoints; at most 4 are allowed."]
    assert "cache_control" not in json.dumps(render(get_format(ANTHROPIC), natives))


def test_thinking_is_never_a_breakpoint() -> None:
    natives = [START, assistant({**thinking(), **MARK}, text("yes"))]
    assert violations(ANTHROPIC, natives) == ["Message 1, block 0: thinking cannot be a cache breakpoint."]
    assert render(get_format(ANTHROPIC), natives)[1]["content"] == [thinking(), text("yes")]


laws = settings(max_examples=examples(120), suppress_health_check=[HealthCheck.too_slow])
formats = pytest.mark.parametrize("name", FORMAT_NAMES)


def dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=True)


@formats
@laws
@given(st.data())
def test_a_valid_conversation_breaks_no_rule_and_is_rendered_unchanged(name: str, data: st.DataObject) -> None:
    natives = data.draw(conversations(name))
    assert violations(name, natives) == []
    assert dumped(render(get_format(name), natives)) == dumped(natives)


@formats
@laws
@given(st.data())
def test_a_broken_conversation_is_rendered_valid_and_rendering_again_changes_nothing(
    name: str, data: st.DataObject
) -> None:
    natives = data.draw(conversations(name, broken=True))
    before = copy.deepcopy(natives)
    rendered = render(get_format(name), natives)
    assert violations(name, rendered) == []
    assert dumped(render(get_format(name), rendered)) == dumped(rendered)
    assert natives == before


@formats
@laws
@given(st.data())
def test_every_generated_message_is_read_and_detected(name: str, data: st.DataObject) -> None:
    natives = data.draw(conversations(name))
    for native in natives:
        found = get_format(name).read(native)
        assert len(found.blocks) == len(found.texts)
        assert [block.size for block in found.blocks] == [len(text) for text in found.texts]
    if any(get_format(name).is_own(native) for native in natives):
        assert detect_format(natives) == name


@formats
@laws
@given(st.data())
def test_replacing_a_result_changes_that_text_and_nothing_else(name: str, data: st.DataObject) -> None:
    fmt = get_format(name)
    natives = data.draw(conversations(name))
    replaced = []
    for native in natives:
        found = fmt.read(native)
        places = [place for place, block in enumerate(found.blocks) if block.type == "tool_result"]
        chosen = [place for place in places if data.draw(st.booleans())]
        before = copy.deepcopy(native)
        changed = fmt.replace(native, {place: f"placeholder {place}" for place in chosen})
        replaced.append(changed)
        assert native == before
        assert list(changed) == list(native)
        kept = [
            (block, text)
            for place, (block, text) in enumerate(zip(found.blocks, found.texts, strict=True))
            if not _goes(found.blocks, place, chosen)
        ]
        again = fmt.read(changed)
        shown = list(zip(again.blocks, again.texts, strict=True))
        placeholders = [pair for pair in shown if pair[1].startswith("placeholder ")]
        assert [text for _, text in placeholders] == [f"placeholder {place}" for place in chosen]
        assert [pair for pair in shown if pair not in placeholders] == kept
    assert violations(name, replaced) == []


def _goes(blocks: Any, place: int, chosen: list[int]) -> bool:
    if place in chosen:
        return True
    owners = [index for index in chosen if index < place]
    return bool(owners and blocks[place].type == "image" and blocks[place].call_id == blocks[owners[-1]].call_id)


@formats
@settings(max_examples=examples(400))
@given(native=json_objects)
def test_reading_arbitrary_json_gives_blocks_or_a_clear_error(name: str, native: dict[str, Any]) -> None:
    fmt = get_format(name)
    with suppress(BadMessageError):
        for block in fmt.read(native).blocks:
            assert block.argument is None or (len(block.argument) <= 120 and "\n" not in block.argument)


@formats
@settings(max_examples=examples(300))
@example([{"role": "model", "parts": [{"functionCall": {"name": "ls"}}]}])
@example([{"type": "other_output", "call_id": "c", "output": [[None], "x"]}])
@example([{"role": "assistant"}])
@given(natives=st.lists(json_objects, max_size=4))
def test_every_readable_list_can_be_rendered_and_validated(name: str, natives: list[dict[str, Any]]) -> None:
    readable = [native for native in natives if get_format(name).misfit(native) is None]
    assert violations(name, render(get_format(name), readable)) == []


def test_what_a_request_showed_of_an_interrupted_call_stays_as_it_was_behind_the_next_reply() -> None:
    before, after = [START, assistant(tool_use("a"))], [OK, GO, OK]
    shown = render(get_format(ANTHROPIC), before)
    assert shown == [*before, user(MISSING_A)]
    assert render(get_format(ANTHROPIC), [*before, *after]) == [*shown, *after]


def test_responses_to_calls_of_one_id_stay_with_the_names_of_their_calls() -> None:
    calls: list[Native] = [{"functionCall": {"name": name, "id": "call_1", "args": {}}} for name in ("Read", "Bash")]
    natives = [ASKED, *(replied(call) for call in calls)]
    rendered = render(get_format("gemini"), natives)
    assert [part["functionResponse"]["name"] for part in rendered[-1]["parts"]] == ["Read", "Bash"]
    assert render(get_format("gemini"), rendered) == rendered
