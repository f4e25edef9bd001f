"""How much of its model's window each host uses: the stash is given `HOST_WINDOWS` by whatever opens it.

A host that writes the window into its transcript needs no entry: its reader passes it on (`TranscriptSession.window`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

CLAUDE_CODE_WINDOW = 200_000
"""Tokens that Claude Code uses of a larger window by default."""

LARGE_WINDOW_SUFFIX = "[1m]"
"""Claude Code's own ending of a model's name that selects the window of 1,000,000 tokens, as in `sonnet[1m]`."""


def claude_code_window(model: str | None, reported_tokens: int) -> int | None:
    """Claude Code's window in tokens; None for all that the model has: if the model's name selects the large window,
    or more tokens than the default window holds were reported, which shows that the large one is in use."""
    if LARGE_WINDOW_SUFFIX in (model or "") or reported_tokens > CLAUDE_CODE_WINDOW:
        return None
    return CLAUDE_CODE_WINDOW


HOST_WINDOWS: Mapping[str, Callable[[str | None, int], int | None]] = {"claude-code": claude_code_window}
"""By the name of the agent that sessions are recorded under. A host that is missing uses its model's whole window."""
