"""A session as Markdown for people: messages, tool calls and outputs, and what the model sees of them."""

from __future__ import annotations

import re

from contextstash.display.visible_text import visible
from contextstash.results import ContextStatus, ShownBlock, ShownMessage, ShownSummary

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")

NAMES = {"thinking": "Thinking", "tool_call": "Call", "tool_result": "Output", "image": "Image", "document": "Document"}


def markdown_head(status: ContextStatus) -> str:
    """The title, and the sizes of the session."""
    estimate = status.estimate
    return (
        f"# {_plain(status.title or status.session_id)}\n\n"
        f"Session {_plain(status.session_id)}: {status.messages:,} messages"
        f" ({status.messages_summarized:,} summarized), {status.outputs_archived:,} tool outputs archived,"
        f" {estimate.tokens:,} of {estimate.usable:,} usable tokens in the window.\n"
    )


def markdown_summary(summary: ShownSummary, seer: str) -> str:
    """A summary, before the first of the messages that it replaces."""
    return (
        f"\n## Summary {summary.summary_id} of messages {summary.first_seq} to {summary.last_seq}\n\n"
        f"{seer} this text instead of them:\n\n{_fenced(summary.text)}\n"
    )


def markdown_message(message: ShownMessage, seer: str) -> str:
    """One message with all its blocks."""
    hidden = "" if message.visible else f", in summary {message.summary_id}" if message.summary_id else ", not in view"
    pieces = [f"\n## {message.seq} {_plain(message.role)}{hidden}\n"]
    pieces += [_block(block, seer) for block in message.blocks]
    return "\n".join(pieces)


def _block(block: ShownBlock, seer: str) -> str:
    named = " ".join(filter(None, (NAMES.get(block.type, ""), _plain(block.heading), block.handle or "")))
    head = f"**{named}**\n\n" if named else ""
    if block.type == "text":
        return f"{head}{_quoted(block.text)}\n"
    body = _fenced(block.text) if block.text else ""
    if block.shown is not None:
        body += f"\n\n{seer}:\n\n{_fenced(block.shown)}"
    return f"{head}{body}\n"


def _plain(text: str) -> str:
    """A text in one line, with Markdown escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(visible(text).split()))


def _quoted(text: str) -> str:
    """A text as a quotation, with Markdown escaped: whoever opens the document loads nothing and runs nothing."""
    lines = (_SPECIAL.sub(r"\\\1", line) for line in visible(text).splitlines())
    return "\n".join(f"> {line}".rstrip() for line in lines)


def _fenced(text: str) -> str:
    """A text between fences that are longer than any fence in it."""
    text = visible(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"
