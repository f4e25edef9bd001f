"""Every real session, read, rendered and cut."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contextstash.messages.detection import detect_format, get_format
from contextstash.messages.rules import render, safe_cuts
from tests.support.conversations import as_messages, trace_files, trace_natives
from tests.support.provider_rules import violations

TRACES = trace_files()


@pytest.mark.skipif(not TRACES, reason="the real sessions are not beside the repository")
@pytest.mark.parametrize(("name", "path"), TRACES, ids=[path.name for _, path in TRACES])
def test_a_real_session_is_detected_read_rendered_valid_and_can_be_cut(name: str, path: Path) -> None:
    natives = trace_natives(name, path)
    before = json.dumps(natives)
    fmt = get_format(name)
    assert detect_format(natives) == name
    messages = as_messages(name, natives)
    rendered = render(fmt, natives)
    assert violations(name, rendered) == []
    assert render(fmt, rendered) == rendered
    assert json.dumps(natives) == before
    cuts = safe_cuts(messages)
    assert len(cuts) > len(messages) // 10
    summary = fmt.user_message("Summary of what came before.")
    for cut in cuts[:: max(1, len(cuts) // 5)]:
        assert violations(name, render(fmt, [summary, *natives[cut:]])) == []
        repaired = json.dumps(render(fmt, [summary, *natives[cut:]])).count("no longer shown")
        assert repaired == 0
