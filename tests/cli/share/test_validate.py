"""`contextstash validate`: violations of a provider's rules in a message list, and the repaired list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextstash.cli.share.validate import read_document, repaired
from contextstash.formats import get_format
from contextstash.formats.repairs import repairs, unreadable
from tests.support.command_line import CommandLine, failure_of
from tests.support.conversations import FORMAT_NAMES, conversations
from tests.support.effort import examples
from tests.support.provider_rules import violations

CALL = {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
BROKEN: list[dict[str, Any]] = [
    {"role": "user", "content": "List the files."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "user", "content": "Go on."},
]


def written(contextstash: CommandLine, document: object) -> Path:
    path = contextstash.folder / "messages.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_each_violation_is_named_and_the_exit_code_says_so(contextstash: CommandLine) -> None:
    done = contextstash.run("validate", written(contextstash, BROKEN))
    assert done.returncode == 1
    assert "call_1" in done.stdout
    assert done.stderr == ""


def test_messages_of_one_role_are_to_be_merged_and_a_result_of_no_call_is_called_so(
    contextstash: CommandLine,
) -> None:
    twice = [{"role": "user", "content": [{"type": "text", "text": "a"}]}, {"role": "user", "content": "b"}]
    done = contextstash.run("validate", "--format", "anthropic", written(contextstash, twice))
    assert done.stdout.startswith("Message 0 to 1 have the same role, user: merge them\n")
    result = {"role": "tool", "tool_call_id": "call_9", "content": "x"}
    done = contextstash.run("validate", written(contextstash, [BROKEN[0], result]))
    assert done.stdout.startswith("Message 1 is the result of a call that is not open there; it can be sent as text")


def test_a_number_that_equals_nothing_is_valid(contextstash: CommandLine) -> None:
    done = contextstash.run("validate", written(contextstash, '[{"role": "user", "content": "a", "x": NaN}]'))
    assert (done.returncode, done.stdout) == (0, "Valid: 1 message, openai-chat.\n")


def test_a_valid_list_is_valid(contextstash: CommandLine) -> None:
    done = contextstash.run("validate", written(contextstash, BROKEN[:1]))
    assert (done.returncode, done.stdout) == (0, "Valid: 1 message, openai-chat.\n")


def test_only_the_messages_of_a_request_are_repaired(contextstash: CommandLine) -> None:
    request = {"model": "gpt-4.1", "messages": BROKEN, "tools": [{"type": "function"}], "temperature": 0}
    done = contextstash.run("validate", "--repair", written(contextstash, request))
    answer = json.loads(done.stdout)
    assert done.returncode == 0
    assert {**answer, "messages": BROKEN} == request
    assert violations("openai-chat", answer["messages"]) == []
    assert "call_1" in done.stderr


def test_system_prompt_and_tools_of_a_request_stay_and_its_breakpoints_become_few_enough(
    contextstash: CommandLine,
) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    questions = [{"role": "user", "content": [{"type": "text", "text": f"question {n}", **mark}]} for n in range(3)]
    messages = [
        questions[0],
        {"role": "assistant", "content": "yes"},
        questions[1],
        {"role": "assistant", "content": "no"},
        questions[2],
    ]
    beside = {
        "model": "claude-opus-5",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "Be brief.", **mark}],
        "tools": [{"name": "f", "input_schema": {}, **mark}],
    }
    file = written(contextstash, {**beside, "messages": messages})
    first_line = contextstash.run("validate", file).stdout.splitlines()[0]
    assert first_line == "The request has 5 cache breakpoints, 2 of them outside the messages; at most 4 are allowed."
    answer = json.loads(contextstash.run("validate", file, "--repair").stdout)
    assert {key: answer[key] for key in beside} == beside
    assert [
        block for message in answer["messages"][::2] for block in message["content"] if "cache_control" in block
    ] == [block for message in questions[1:] for block in message["content"]]
    assert contextstash.run("validate", written(contextstash, answer)).returncode == 0


def test_a_request_that_continues_stored_messages_is_refused(contextstash: CommandLine) -> None:
    answer = {"type": "function_call_output", "call_id": "a", "output": "x"}
    request = {"previous_response_id": "resp_1", "input": [answer]}
    assert "previous_response_id" in failure_of(
        contextstash.run("validate", "--repair", written(contextstash, request))
    )


def test_a_byte_order_mark_and_odd_line_ends_in_texts_are_accepted(contextstash: CommandLine) -> None:
    lines = "\ufeff" + "\n".join(
        json.dumps(message, ensure_ascii=False) for message in [user_message("a\u2028b"), user_message("c")]
    )
    done = contextstash.run("validate", "--repair", "--format", "anthropic", written(contextstash, lines))
    assert json.loads(done.stdout) == [
        {"role": "user", "content": [{"type": "text", "text": "a\u2028b"}, {"type": "text", "text": "c"}]}
    ]


def user_message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_json_lines_and_standard_input_are_read_too(contextstash: CommandLine) -> None:
    lines = "\n".join(json.dumps(message) for message in BROKEN)
    done = contextstash.run("validate", "--json", "-", typed=lines)
    answer = json.loads(done.stdout)
    assert (answer["messages"], answer["valid"], len(answer["violations"])) == (3, False, 1)


@pytest.mark.parametrize("text", ["{", "[]", "[1]", '"text"', '{"a": 1}', '{"role": "user"}\n{'])
def test_a_file_without_a_message_list_is_an_error_in_one_line(contextstash: CommandLine, text: str) -> None:
    assert failure_of(contextstash.run("validate", written(contextstash, text)))


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_repaired_is_valid(format_name: str, data: st.DataObject) -> None:
    natives = data.draw(conversations(format_name, broken=True))
    beside = data.draw(st.sampled_from([None, {"system": "Be brief.", "tools": [{"name": "f"}]}]))
    key = {"openai-responses": "input", "gemini": "contents"}.get(format_name, "messages")
    document = read_document(json.dumps(natives if beside is None else {**beside, key: natives})) if natives else None
    if document is not None:
        answer = repaired(document, get_format(format_name))
        assert violations(format_name, answer if beside is None else answer.pop(key)) == []
        assert beside is None or answer == beside


def test_equal_violations_are_one_line_with_the_messages_and_their_count(contextstash: CommandLine) -> None:
    texts = [("user", "Build it."), ("assistant", "Built."), ("user", "Again."), ("assistant", "Built again.")]
    messages = [{"role": role, "content": text, "model": "m"} for role, text in texts]
    path = contextstash.folder / "messages.json"
    path.write_text(json.dumps(messages), encoding="utf-8")
    done = contextstash.run("validate", path, "--format", "anthropic")
    first, last = done.stdout.splitlines()
    assert first == "Message … has the key 'model', which a request may not have. (4 messages: 0, 1, 2, 3)"
    assert last.startswith("4 violations of the rules of anthropic.")


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_all_that_is_refused_is_found_and_nothing_in_a_valid_list(format_name: str, data: st.DataObject) -> None:
    fmt = get_format(format_name)
    assert repairs(fmt, data.draw(conversations(format_name))) == []
    broken = data.draw(conversations(format_name, broken=True))
    if violations(format_name, broken):
        assert unreadable(fmt, broken) or repairs(fmt, broken)
