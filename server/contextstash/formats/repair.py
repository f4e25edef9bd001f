"""The texts that are inserted when a message list is repaired before it is sent."""

from __future__ import annotations

MISSING_RESULT = "[No result of this tool call was recorded: it was interrupted.]"

ASSISTANT_FIRST = "(The conversation so far begins with the assistant.)"


def orphan_text(text: str) -> str:
    """The text that stands for a result whose tool call is no longer in the list."""
    return f"[Result of a tool call that is no longer shown]\n{text}" if text.strip() else ""
