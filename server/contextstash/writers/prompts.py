"""The prompts for a model that writes summaries, and a session as text for that model."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pkgutil import get_data

from contextstash.events.turns import Turn
from contextstash.outputs.limits import OutputLimits, limit
from contextstash.safety.sanitize import defused, encodable, one_line, unbracketed
from contextstash.writers.base import SummaryRequest
from contextstash_storage.records import Block

_DATA = tomllib.loads((get_data(__package__, "prompts.toml") or b"").decode())
_TEXTS: dict[str, str] = _DATA["texts"]

PROMPTS: dict[str, str] = {
    name: text.replace("{contents}", _DATA["contents"]) for name, text in _DATA["prompts"].items()
}
"""The prompts that a setting names."""

DIGEST = _TEXTS["digest"]
"""The instructions for a digest of at most so many `words`."""

MEDIA = {"image": "[image]", "document": "[document]"}


def system_text(request: SummaryRequest) -> str:
    """The instructions to the model."""
    # Two thirds of the tokens, because English text has about 1.3 tokens a word and the limit should not be reached.
    words = max(50, request.max_tokens * 2 // 3)
    parts = [PROMPTS.get(request.prompt, request.prompt), f"Use at most about {words} words.", _TEXTS["rules"]]
    if request.instructions and request.instructions.strip():
        parts.append(f"The user's wishes for this summary: {request.instructions.strip()}")
    return "\n\n".join(parts)


def user_text(session: str, previous: str | None, *, replaces: bool) -> str:
    """The message to the model: the summary of what came before, then the session."""
    before = ""
    if previous:
        note = _TEXTS["previous_replaced" if replaces else "previous_stands"]
        before = f"{note}\n\n<previous_summary>\n{_TAGS.sub('‹', encodable(previous))}\n</previous_summary>\n\n"
    return f"{before}<session>\n{encodable(session)}\n</session>\n\nWrite the summary now."


def turn_text(turn: Turn, output_chars: int | None) -> str:
    """One message as text for a model; archived tool results have their handles."""
    speaker = "host" if turn.role == "user" and turn.kind == "host" else turn.role
    return "\n".join((f"### {speaker} (message {turn.seq})", *_blocks(turn, output_chars)))


def _blocks(turn: Turn, output_chars: int | None) -> Iterator[str]:
    for index, (block, text) in enumerate(zip(turn.blocks, turn.texts, strict=True)):
        if block.type in MEDIA:
            yield MEDIA[block.type]
        elif block.type == "tool_call":
            yield f"[calls {_tool(block)}] {_cut(text, output_chars)}"
        elif block.type == "tool_result":
            yield _result(block, text, turn.handles.get(index), output_chars)
        elif block.type == "thinking":
            if text:
                yield f"[thinks] {_cut(text, output_chars)}"
        elif text:
            yield _material(text)


def _result(block: Block, text: str, handle: str | None, output_chars: int | None) -> str:
    failed = " failed" if block.is_error else ""
    kept = f", {handle}" if handle else ""
    return f"[result of {_tool(block)}{kept}{failed}]\n{_cut(text, output_chars)}"


def _tool(block: Block) -> str:
    return unbracketed(one_line(block.tool or "a tool", 80))


_LABELS = re.compile(
    r"^(?P<lead>[ \t]*)(?P<label>\[(?:calls |result of |thinks\])|#{1,6}[ \t]*(?:host|tool)\b)",
    re.IGNORECASE | re.MULTILINE,
)
_TAGS = re.compile(r"<(?=/?[ \t]*(?:session|previous_summary|summary|output)[ \t]*>)", re.IGNORECASE)


def _material(text: str) -> str:
    """Text of a session in which nothing looks like a label between its messages or like its end."""
    return _TAGS.sub("‹", _LABELS.sub(lambda found: f"{found['lead']}“{found['label']}”", defused(text)))


def _cut(text: str, most: int | None) -> str:
    text = _material(text)
    return text if most is None else limit(text, OutputLimits(chars=most, cut="head_tail"), len)


def digest_text(tool: str, argument: str, text: str) -> str:
    """The message to the model with one tool output to digest."""
    call = json.dumps({"tool": tool, "argument": argument}, ensure_ascii=False)
    return f"{encodable(call)}\n<output>\n{_material(encodable(text))}\n</output>\n\nWrite the digest now."


def shortened_to(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """The text, or its head and tail, with at most `max_tokens` tokens."""
    return limit(text, OutputLimits(tokens=max_tokens, cut="head_tail"), count)


def first_lines(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """The text without its last lines, so that it fits."""
    lines = text.split("\n")
    while len(lines) > 1 and count("\n".join(lines)) > max_tokens:
        del lines[-max(1, len(lines) // 20) :]  # a twentieth at a time, so that few counts are needed
    return shortened_to("\n".join(lines), max_tokens, count)


def compaction_prompt(session_id: str | None = None, instructions: str | None = None) -> str:
    """The prompt `compact`: asks the host's model to write the summary and to pass it to compact_session."""
    session = f' and session_id "{session_id}"' if session_id else ""
    wishes = f"\n\nIn particular: {instructions.strip()}" if instructions and instructions.strip() else ""
    return _TEXTS["compact"].format(contents=_DATA["contents"], wishes=wishes, session=session)
