"""The fields of a whole request that affect its messages."""

from __future__ import annotations

from typing import Any

import pytest

from contextstash.messages.request.whole import format_of, kept_elsewhere, marks_beside

HI = {"role": "user", "content": "hi"}
CONTENT: dict[str, Any] = {"role": "user", "parts": [{"text": "hi"}]}
MARK = {"cache_control": {"type": "ephemeral"}}
CALLING: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": []}


@pytest.mark.parametrize(
    ("request_", "messages", "name"),
    [
        ({}, [HI], "openai-chat"),
        ({"input": [HI]}, [HI], "openai-responses"),
        ({"system": "be brief"}, [HI], "anthropic"),
        ({"tools": [{"name": "f", "input_schema": {}}]}, [HI], "anthropic"),
        ({"tools": [{"type": "function", "function": {}}]}, [HI], "openai-chat"),
        ({"system": "be brief"}, [HI, CALLING], "openai-chat"),
        ({"contents": [CONTENT], "systemInstruction": {"parts": [{"text": "be brief"}]}}, [CONTENT], "gemini"),
    ],
)
def test_plain_text_has_the_format_of_the_rest_of_the_request(
    request_: dict[str, Any], messages: list[dict[str, Any]], name: str
) -> None:
    assert format_of(request_, messages) == name


def test_a_request_may_continue_a_conversation_that_the_provider_stores() -> None:
    assert kept_elsewhere({"previous_response_id": "resp_1"}) == "previous_response_id"
    assert kept_elsewhere({"conversation": {"id": "conv_1"}}) == "conversation"
    assert kept_elsewhere({"previous_response_id": None, "input": []}) is None


def test_breakpoints_of_tools_and_system_prompt_count_and_so_does_the_automatic_one() -> None:
    system = [{"type": "text", "text": "be brief", **MARK}]
    request = {"system": system, "tools": [{"name": "f"}, {"name": "g", **MARK}], **MARK}
    assert marks_beside(request) == 3
    assert marks_beside({"system": "be brief"}) == 0
