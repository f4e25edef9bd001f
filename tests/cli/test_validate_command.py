"""`contextstash validate`: what a provider would refuse about a message list, and the list repaired."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine, failure_of
from conversations import FORMAT_NAMES, conversations
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextstash.cli.validating import read_document
from contextstash.context.pairing.rules import violations
from contextstash.formats import get_format
from contextstash.formats.render import render

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


def test_a_valid_list_is_valid(contextstash: CommandLine) -> None:
    done = contextstash.run("validate", written(contextstash, BROKEN[:1]))
    assert (done.returncode, done.stdout) == (0, "Valid: 1 messages, openai-chat.\n")


def test_a_whole_request_is_repaired_and_all_else_in_it_stays(contextstash: CommandLine) -> None:
    request = {"model": "gpt-4.1", "messages": BROKEN, "tools": [{"type": "function"}], "temperature": 0}
    done = contextstash.run("validate", "--repair", written(contextstash, request))
    repaired = json.loads(done.stdout)
    assert done.returncode == 0
    assert {**repaired, "messages": BROKEN} == request
    assert violations("openai-chat", repaired["messages"]) == []
    assert "call_1" in done.stderr


def test_json_lines_and_standard_input_are_read_too(contextstash: CommandLine) -> None:
    lines = "\n".join(json.dumps(message) for message in BROKEN)
    done = contextstash.run("validate", "--json", "-", typed=lines)
    answer = json.loads(done.stdout)
    assert (answer["messages"], answer["valid"], len(answer["violations"])) == (3, False, 1)


@pytest.mark.parametrize("text", ["{", "[]", "[1]", '"text"', '{"a": 1}', '{"role": "user"}\n{'])
def test_what_is_no_message_list_is_an_error_in_one_line(contextstash: CommandLine, text: str) -> None:
    assert failure_of(contextstash.run("validate", written(contextstash, text)))


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_repaired_is_valid(format_name: str, data: st.DataObject) -> None:
    natives = data.draw(conversations(format_name, broken=True))
    document = read_document(json.dumps(natives)) if natives else None
    if document is not None:
        assert violations(format_name, render(get_format(format_name), document.messages)) == []
