"""Providers say in `input_transformations` which reasoning they did not use."""

from __future__ import annotations

from typing import Any

import pytest

from contextstash.messages.reasoning_reports import DroppedReasoning, dropped_reasoning

CLAUDE = {"type": "thinking_dropped", "reason": "prefix_binding_mismatch"}
GPT = {"id": "rs_1", "reason": "prefix_mismatch"}


@pytest.mark.parametrize(
    ("response", "found"),
    [
        ({"input_transformations": [CLAUDE, CLAUDE]}, DroppedReasoning(2, ("prefix_binding_mismatch",))),
        ({"message": {"input_transformations": [CLAUDE]}}, DroppedReasoning(1, ("prefix_binding_mismatch",))),
        ({"response": {"input_transformations": [GPT]}}, DroppedReasoning(1, ("prefix_mismatch",))),
        ({"input_transformations": [{**CLAUDE, "type": "thinking_mismatch_allowed"}]}, None),
        ({"input_transformations": []}, None),
        ({"input_transformations": "nonsense", "message": [1]}, None),
        ({}, None),
    ],
)
def test_what_a_response_reports(response: dict[str, Any], found: DroppedReasoning | None) -> None:
    assert dropped_reasoning(response) == found


def test_the_sentence_names_number_and_reason() -> None:
    assert "2 pieces of reasoning (prefix_mismatch)" in DroppedReasoning(2, ("prefix_mismatch",)).sentence
    assert "a piece of reasoning:" in DroppedReasoning(1, ()).sentence
