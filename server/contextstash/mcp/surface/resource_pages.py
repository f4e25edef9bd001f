"""Pages of a bounded size for resources, and the numbers in their URIs."""

from __future__ import annotations

import json
import re
from typing import Any

from contextstash.mcp.wire.sendable import named_numbers
from contextstash_storage.errors import BadInputError

MAX_LINES = 200
"""Messages, events or calls in one page; the size of a page of messages is limited by MAX_PAGE_CHARACTERS too."""

MAX_PAGE_CHARACTERS = 256_000
"""Longest page of messages, some 64,000 tokens: a page must fit into a window."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def positive(name: str, value: str, most: int = 2**53) -> int:
    """A number from a URI's query, at most `most`. Raises BadInputError if it is not a whole number."""
    if not value.isascii() or not value.isdigit() or len(value) > 15:
        raise BadInputError(f"{name} must be a whole number, 0 or more.")
    return min(int(value), most)


def bounded_page(page: dict[str, Any]) -> str:
    """A page of messages as JSON, cut after the last message that fits. A message that is too large for a page is
    shown without its body."""
    room = MAX_PAGE_CHARACTERS
    kept: list[str] = []
    for line in page["messages"]:
        text = exact_json(line)
        if kept and len(text) > room:
            page["next_seq"] = line["seq"]
            break
        kept.append(text if len(text) <= room else exact_json(_without_body(line, len(text))))
        room -= len(kept[-1])
    rest = exact_json({name: value for name, value in page.items() if name != "messages"})
    return f'{rest[:-1]},"messages":[{",".join(kept)}]}}'


def _without_body(line: dict[str, Any], size: int) -> dict[str, Any]:
    shown = {name: value for name, value in line.items() if name != "message"}
    shown["left_out"] = f"{size:,} characters, too large for a page; get_archived_output pages its tool outputs"
    return shown


def exact_json(value: object) -> str:
    """JSON in which lone surrogates are escapes, so that the text can be sent and is read back equal, and numbers that
    are not JSON are their names."""
    text = json.dumps(named_numbers(value), ensure_ascii=False, separators=(",", ":"))
    return text if text.isascii() else _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
