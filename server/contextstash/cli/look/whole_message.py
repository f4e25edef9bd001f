"""One recorded message in full, as text: what was said, calls with their arguments, results with their handles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextstash.messages.base import Reading
    from contextstash.results import MessageLine
    from contextstash_storage.records import Block


def message_text(line: MessageLine, format_name: str) -> str:
    """The whole message, under a headline."""
    from contextstash.messages import get_format

    reading = get_format(format_name).read(line.message)
    time = "" if line.created_at is None else f", {line.created_at.astimezone():%Y-%m-%d %H:%M}"
    headline = f"message {line.seq}, {line.role}{time}, {line.tokens:,} tokens"
    return "\n\n".join([headline, *_parts(reading, list(line.handles or ()))])


def _parts(reading: Reading, handles: list[str]) -> Iterator[str]:
    for block, text in zip(reading.blocks, reading.texts, strict=True):
        yield "\n".join(part for part in (_label(block, handles), _text(block, text)) if part)


def _label(block: Block, handles: list[str]) -> str:
    """The heading of a part; empty for plain text. Takes the handle of a result from the list."""
    match block.type:
        case "text":
            return ""
        case "tool_call":
            return f"[calls {block.tool}]"
        case "tool_result":
            return f"[result{f', {handles.pop(0)}' if handles else ''}]"
        case other:
            return f"[{other}]"


def _text(block: Block, text: str) -> str:
    return readable_arguments(text) if block.type == "tool_call" else text


def readable_arguments(arguments: str) -> str:
    """The arguments of a call: one with a name each, texts with their line breaks."""
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    if not isinstance(parsed, dict):
        return arguments
    return "\n".join(f"{name}: {_value(value)}" for name, value in parsed.items())


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return f"\n{text}" if "\n" in text else text
