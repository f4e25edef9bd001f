"""Marks text that a host added to a user's message, so that it is not treated as written by the user."""

from __future__ import annotations

import re

from contextstash.context.tool_outputs.shell_envelope import REMINDER_END, REMINDER_START

_TAG = re.compile(r"<(?=/?system-reminder)", re.IGNORECASE)


def reminder(text: str) -> str:
    """The text between the tags of a reminder, with such tags in the text escaped, so that the text cannot close it."""
    return f"{REMINDER_START}\n{_TAG.sub('‹', text)}\n{REMINDER_END}"
