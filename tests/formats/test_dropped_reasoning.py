"""What responses say about reasoning that was left out of their requests."""

from __future__ import annotations

import json

from contextstash.formats.dropped_reasoning import DroppedReasoning, dropped_reasoning
from contextstash.proxy.usage_tap import UsageTap


def test_the_reports_of_both_providers_are_read() -> None:
    openai = {"input_transformations": [{"type": "reasoning_dropped", "id": "rs_1", "reason": "prefix_mismatch"}]}
    assert dropped_reasoning(openai) == (DroppedReasoning("rs_1", "prefix_mismatch"),)
    block = {"type": "thinking_dropped", "reason": "model_binding_mismatch", "message_index": 3}
    allowed = {"type": "thinking_mismatch_allowed", "reason": "prefix_binding_mismatch"}
    [found] = dropped_reasoning({"input_transformations": [block, allowed]})
    assert found.reason == "model_binding_mismatch"


def test_what_is_no_report_is_none() -> None:
    values: list[object] = [None, {}, "x", [], [None, 1, {}, {"type": 7}]]
    for value in values:
        assert dropped_reasoning({"input_transformations": value}) == ()


def test_a_stream_reports_in_its_first_event() -> None:
    report = [{"type": "thinking_dropped", "reason": "prefix_binding_mismatch"}]
    start = {"type": "message_start", "message": {"id": "m", "input_transformations": report, "usage": {}}}
    tap = UsageTap("text/event-stream", None)
    tap.take(b"event: message_start\ndata: " + json.dumps(start).encode() + b"\n\n")
    assert [each.reason for each in tap.dropped] == ["prefix_binding_mismatch"]


def test_an_entry_without_a_type_counts_as_dropped() -> None:
    [found] = dropped_reasoning({"input_transformations": [{"id": "rs_1", "reason": "prefix_mismatch"}]})
    assert (found.name, found.reason) == ("rs_1", "prefix_mismatch")
