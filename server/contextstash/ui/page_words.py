"""Messages of the service in the words of the pages: without the tools, arguments and commands that do the same."""

from __future__ import annotations

import re

from contextstash.context.tool_outputs.own_tools import OWN_TOOLS

ARGUMENTS = ("keep_last", "protect_tokens", "minimum_tokens", "session_id")
"""Of our tools, as messages name them."""

_ELSEWHERE = re.compile(rf"\b(?:{'|'.join((*sorted(OWN_TOOLS), *ARGUMENTS))})\b|`contextstash ")
_SENTENCE = re.compile(r"(?<=[.!?:;])\s+")


def for_pages(text: str) -> str:
    """The sentences of a message that say nothing of what to call or to pass: a page has buttons for that."""
    kept = [sentence for sentence in _SENTENCE.split(text) if not _ELSEWHERE.search(sentence)]
    words = " ".join(kept).strip()
    return f"{words[:-1]}." if words.endswith((";", ":", ",")) else words
