"""Shell envelopes: what a command printed, without what an agent's shell tool adds."""

from __future__ import annotations

import json

from contextstash.outputs.shell_envelope import without_json_envelopes


def test_a_json_envelope_is_shown_as_the_lines_that_were_printed() -> None:
    envelope = json.dumps(
        {"output": "Success.\nM docs/usage.md\n", "metadata": {"exit_code": 0}}, separators=(",", ":")
    )
    assert without_json_envelopes(f"apply_patch docs\n{envelope}") == "apply_patch docs\nSuccess.\nM docs/usage.md\n"


def test_other_json_and_a_damaged_envelope_stay() -> None:
    for text in ('{"planted": 1900}', '{"output":"cut o', '{"output": [1]}', "plain\ntext"):
        assert without_json_envelopes(text) == text
