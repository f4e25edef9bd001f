"""Messages of the service in the words of the pages: without the tools, arguments and commands that do the same."""

from __future__ import annotations

import re

_ELSEWHERE = re.compile(
    r"\b(?:prune_tool_outputs|compact_session|restore_outputs|search_history|get_archived_output|get_summary"
    r"|list_sessions|context_status|estimate_context|record_messages|configure_session|delete_session|keep_last"
    r"|protect_tokens|minimum_tokens|session_id)\b|`contextstash "
)
_SENTENCE = re.compile(r"(?<=[.!?:;])\s+")


def for_pages(text: str) -> str:
    """The sentences of a message that say nothing of what to call or to pass: a page has buttons for that."""
    kept = [sentence for sentence in _SENTENCE.split(text) if not _ELSEWHERE.search(sentence)]
    words = " ".join(kept).strip()
    return f"{words[:-1]}." if words.endswith((";", ":", ",")) else words
