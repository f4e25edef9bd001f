"""Where a session may be cut: laws over generated conversations, and examples."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextstash.messages.detection import get_format
from contextstash.messages.rules import render, safe_cuts
from contextstash_storage.records import Native
from tests.messages.natives import (
    REASONING,
    assistant,
    call_item,
    chat_calls,
    chat_result,
    output_item,
    text,
    thinking,
    tool_result,
    tool_use,
    user,
)
from tests.support.conversations import FORMAT_NAMES, as_messages, conversations
from tests.support.effort import examples
from tests.support.provider_rules import violations

formats = pytest.mark.parametrize("name", FORMAT_NAMES)
laws = settings(max_examples=examples(80), suppress_health_check=[HealthCheck.too_slow])


def cuts(name: str, natives: list[Native]) -> list[int]:
    return safe_cuts(as_messages(name, natives))


def without_neighbours(name: str, natives: list[Native]) -> list[str]:
    """The violations without that of neighbours of one role, which assembling merges."""
    return [problem for problem in violations(name, natives) if "same role" not in problem]


@formats
@laws
@given(st.data())
def test_each_part_at_a_safe_cut_is_valid_on_its_own(name: str, data: st.DataObject) -> None:
    natives = data.draw(conversations(name))
    found = cuts(name, natives)
    assert 0 in found
    assert len(natives) in found
    summary = get_format(name).user_message("Summary of what came before.")
    for cut in found:
        assert without_neighbours(name, natives[:cut]) == []
        assert without_neighbours(name, [summary, *natives[cut:]]) == []


@formats
@laws
@given(st.data())
def test_a_cut_never_makes_a_broken_list_need_more_repair(name: str, data: st.DataObject) -> None:
    natives = data.draw(conversations(name, broken=True))
    fmt = get_format(name)
    rendered = render(fmt, natives)
    for cut in cuts(name, rendered):
        assert without_neighbours(name, rendered[:cut]) == []
        assert without_neighbours(name, [fmt.user_message("Summary."), *rendered[cut:]]) == []
    for cut in cuts(name, natives):
        assert violations(name, render(fmt, [fmt.user_message("Summary."), *natives[cut:]])) == []


USER: Native = {"role": "user", "content": "go on"}
TEXT: Native = {"role": "assistant", "content": "I see"}


AB, A, DONE = chat_calls("a", "b"), chat_calls("a"), chat_result("a")


@pytest.mark.parametrize(
    ("natives", "found"),
    [
        pytest.param([USER, A, DONE] * 2, [0, 1, 3, 4, 6], id="an id used again is paired with the nearest call"),
        pytest.param([USER, AB, DONE], [0, 1], id="a result that may still come forbids the cut at the end"),
        pytest.param([USER, A, USER, TEXT], [0, 1, 2, 3, 4], id="an interrupted call forbids no cut behind it"),
        pytest.param([DONE, USER, TEXT], [1, 2, 3], id="a result without its call never begins a part"),
        pytest.param([USER, A, USER, DONE, TEXT], [0, 1, 4, 5], id="a late result keeps all with its call"),
        pytest.param([USER, DONE, A, USER], [0, 3, 4], id="a result before its call stays with it"),
        pytest.param([DONE, TEXT, A, DONE, USER], [1, 4, 5], id="an extra result has no later call of its id"),
    ],
)
def test_where_calls_and_results_forbid_a_cut(natives: list[Native], found: list[int]) -> None:
    assert cuts("openai-chat", natives) == found


def test_a_reply_recorded_in_pieces_stays_whole() -> None:
    def piece(message_id: str, block: Native) -> Native:
        return assistant(block, id=message_id, stop_reason=None)

    natives = [USER, piece("msg_1", thinking())]
    for call_id in ("a", "b"):
        natives += [piece("msg_1", tool_use(call_id)), user(tool_result(call_id))]
    natives += [piece("msg_2", text("ok")), piece("msg_3", text("more"))]
    assert cuts("anthropic", natives) == [0, 1, 6, 7, 8]


def test_reasoning_stays_with_the_item_that_it_led_to() -> None:
    natives = [USER, REASONING, call_item("a"), output_item("a"), REASONING]
    assert cuts("openai-responses", natives) == [0, 1, 4]


def test_a_program_stays_with_its_output_and_the_calls_that_it_made() -> None:
    program = {"type": "program", "id": "prg_1", "call_id": "p", "code": "", "fingerprint": "Z0FB"}
    output = {"type": "program_output", "id": "po_1", "call_id": "p", "result": "2", "status": "completed"}
    natives = [USER, program, call_item("a"), output_item("a"), output, USER]
    assert cuts("openai-responses", natives) == [0, 1, 5, 6]


def test_a_call_of_a_providers_own_tool_stays_with_its_result_and_the_calls_that_it_made() -> None:
    run = {"type": "server_tool_use", "id": "srv", "name": "code_execution", "input": {}}
    caller = {"type": "code_execution_20250825", "tool_id": "srv"}
    called = {**tool_use("a"), "caller": caller}
    ran = {"type": "code_execution_tool_result", "tool_use_id": "srv", "content": {}}
    natives = [USER, assistant(run, called), user(tool_result("a")), assistant(ran, text("ok"))]
    assert cuts("anthropic", natives) == [0, 1, 4]


def thinks(native: Native) -> bool:
    return any(block["type"].endswith("thinking") for block in native["content"] if isinstance(block, dict))


def speaks(native: Native) -> bool:
    content = native["content"]
    answers = isinstance(content, list) and any(block["type"] == "tool_result" for block in content)
    return native["role"] == "user" and not answers


def loop(thinks_first: bool, *rounds: bool) -> list[Native]:
    """A user message and a tool loop after it; the flags say whether the first and each later reply thinks."""
    natives: list[Native] = [{"role": "user", "content": "go on"}]
    for thoughtful in (thinks_first, *rounds):
        thought = [thinking()] if thoughtful else []
        natives += [assistant(*thought, tool_use("a")), user(tool_result("a"))]
    return natives


@laws
@given(st.lists(st.lists(st.booleans(), max_size=5), min_size=2, max_size=4))
def test_an_open_loop_that_is_cut_still_begins_with_thinking_if_all_loops_do(loops: list[list[bool]]) -> None:
    natives = [native for later in loops for native in loop(True, *later)]
    for cut in safe_cuts(as_messages("anthropic", natives)):
        kept = natives[cut:]
        spoken = [place for place, native in enumerate(kept) if speaks(native)]
        open_loop = kept[spoken[-1] + 1 :] if spoken else kept
        assert not open_loop or thinks(open_loop[0])


@pytest.mark.parametrize(
    ("natives", "cuts"),
    [
        pytest.param(
            [*loop(True, False), *loop(True, False, True, False)], [0, 1, 3, 5, 6, 10, 14], id="all think first"
        ),
        pytest.param(loop(True, False, False), [0, 1, 3, 5, 7], id="one loop alone may outgrow the window"),
    ],
)
def test_where_an_open_loop_may_be_cut(natives: list[Native], cuts: list[int]) -> None:
    assert safe_cuts(as_messages("anthropic", natives)) == cuts
