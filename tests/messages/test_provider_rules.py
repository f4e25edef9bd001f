"""The independent rules of the tests find what is wrong with a list of each provider."""

from __future__ import annotations

import pytest

from contextstash_storage.records import Native
from tests.support.provider_rules import violations

CALL: dict[str, Native] = {
    "anthropic": {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
    "openai-chat": {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]},
    "openai-responses": {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
    "gemini": {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
}
RESULT: dict[str, Native] = {
    "anthropic": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]},
    "openai-chat": {"role": "tool", "tool_call_id": "a", "content": "x"},
    "openai-responses": {"type": "function_call_output", "call_id": "a", "output": "x"},
    "gemini": {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"output": "x"}}}]},
}


@pytest.mark.parametrize("name", CALL)
def test_a_list_breaks_no_rule_only_if_calls_and_results_match_one_to_one(name: str) -> None:
    text = {"parts": [{"text": "go"}]} if name == "gemini" else {"content": "go"}
    user, call, result = {"role": "user", **text}, CALL[name], RESULT[name]
    assert violations(name, [user, call, result]) == []
    for rest in ([call], [result], [call, user], [call, result, result], [result, call]):
        assert violations(name, [user, *rest]), rest
