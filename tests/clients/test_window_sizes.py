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


def window_after(contextstash: CommandLine, model: str, prompt_tokens: int) -> int:
    """The window of an imported Claude Code session whose last reply reported this usage."""
    usage = {"input_tokens": prompt_tokens, "output_tokens": 5}
    reply = {"role": "assistant", "id": "r", "model": model, "usage": usage, "content": [{"type": "text", "text": "A"}]}
    records: list[dict[str, Any]] = [
        {"type": "user", "uuid": "a", "parentUuid": None, "message": {"role": "user", "content": "Count the trees."}},
        {"type": "assistant", "uuid": "b", "parentUuid": "a", "message": reply},
    ]
    path = contextstash.folder / f"{SESSION}.jsonl"
    path.write_text("".join(json.dumps({**record, "sessionId": SESSION}) + "\n" for record in records))
    assert contextstash.run("import", path).returncode == 0
    return int(contextstash.json("status", SESSION)["estimate"]["window"])


@pytest.mark.parametrize(
    ("model", "prompt_tokens", "window"),
    [
        (LARGE_MODEL, 5_000, 200_000),
        (f"{LARGE_MODEL}[1m]", 5_000, 1_000_000),
        (LARGE_MODEL, 250_000, 1_000_000),
        ("claude-opus-4-8", 5_000, 1_000_000),
        ("claude-sonnet-5", 5_000, 1_000_000),
        ("claude-opus-4-5-20251101", 5_000, 200_000),
    ],
    ids=["default", "large one selected", "more reported than the default holds", "native", "native too", "small"],
)
def test_claude_code_uses_200000_tokens_unless_it_shows_that_it_uses_more(
    contextstash: CommandLine, model: str, prompt_tokens: int, window: int
) -> None:
    assert window_after(contextstash, model, prompt_tokens) == window


def test_as_many_tokens_as_the_default_window_holds_do_not_show_a_larger_one() -> None:
    assert used_window(LARGE_MODEL, 200_000) == 200_000
    assert used_window(LARGE_MODEL, 200_001) is None
    assert used_window(None, 0) == 200_000


@pytest.mark.parametrize(
    ("model", "native"),
    [
        ("claude-opus-4-7", True),
        ("us.anthropic.claude-opus-4-8", True),
        ("claude-fable-5", True),
        ("claude-mythos-5", True),
        ("claude-opus-5-5", True),
        ("claude-opus-4-20250514", False),
        ("claude-sonnet-4-6", False),
        ("claude-haiku-4-5-20251001", False),
        ("claude-3-5-sonnet-20241022", False),
    ],
)
def test_models_that_claude_code_lists_as_native_are_used_whole(model: str, native: bool) -> None:
    assert (used_window(model, 0) is None) is native
