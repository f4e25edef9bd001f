"""The window of a session is the one that its host uses, which may be smaller than its model's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contextstash.clients.claude_code import used_window
from tests.support.command_line import CommandLine

SESSION = "5b1f6c1e-0000-4000-8000-000000000001"
LARGE_MODEL = "claude-opus-4-6"
"""A model with a window of 1,000,000 tokens."""


@pytest.mark.parametrize(
    ("model", "reported", "window"),
    [
        (None, 0, 200_000),
        (LARGE_MODEL, 200_000, 200_000),
        (LARGE_MODEL, 200_001, None),  # shows that it uses a larger one
        (f"{LARGE_MODEL}[1m]", 0, None),
        ("claude-opus-4-7", 0, None),
        ("us.anthropic.claude-opus-4-8", 0, None),
        ("claude-fable-5", 0, None),
        ("claude-opus-5-5", 0, None),
        ("claude-opus-4-20250514", 0, 200_000),
        ("claude-sonnet-4-6", 0, 200_000),
        ("claude-haiku-4-5-20251001", 0, 200_000),
    ],
)
def test_claude_code_uses_200000_tokens_of_models_that_it_does_not_list_as_native(
    model: str | None, reported: int, window: int | None
) -> None:
    assert used_window(model, reported) == window


def test_the_window_of_an_imported_session_is_the_one_that_claude_code_used(contextstash: CommandLine) -> None:
    usage = {"input_tokens": 5_000, "output_tokens": 5}
    said = [{"type": "text", "text": "A"}]
    reply = {"role": "assistant", "id": "r", "model": LARGE_MODEL, "usage": usage, "content": said}
    records: list[dict[str, Any]] = [
        {"type": "user", "uuid": "a", "parentUuid": None, "message": {"role": "user", "content": "Count the trees."}},
        {"type": "assistant", "uuid": "b", "parentUuid": "a", "message": reply},
    ]
    path = contextstash.folder / f"{SESSION}.jsonl"
    path.write_text("".join(json.dumps({**record, "sessionId": SESSION}) + "\n" for record in records))
    assert contextstash.run("import", path).returncode == 0
    assert contextstash.json("status", SESSION)["estimate"]["window"] == 200_000
