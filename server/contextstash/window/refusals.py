"""Recognizes the error with which a provider refuses a request that exceeds its context window, and its numbers.

recognize("prompt is too long: 213462 tokens > 200000 maximum")
ContextOverflow(limit=200000, prompt_tokens=213462, completion_tokens=None, shape='tokens')
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pkgutil import get_data
from typing import Any, Literal

MAX_END_LENGTH = 4_000
"""How much of each end of a text is searched: the refusal comes first, or last after a traceback."""

_NUMBER = r"(?:[0-9]{1,3}(?:[,_.][0-9]{3}){1,3}|[0-9]{1,12})(?![0-9])"
_PARTS = {
    "} tokens": "} ?tokens?",
    **{f"{{{name}}}": f"(?P<{name}>{_NUMBER})" for name in ("limit", "prompt", "least", "tools", "reply")},
    "{number}": _NUMBER,
    "{code}": r"(?:(?:code|type)['\"]? ?[:=] ?['\"]?|^\W*|\()",
}
"""The parts of the rows in refusals.toml, and the expressions that they stand for."""


@dataclass(frozen=True, slots=True)
class ContextOverflow:
    """A provider's refusal of a request that is too large; a number that it does not contain is None.

    `limit` is the limit in tokens that refused the request: the model's context length, or its largest prompt if the
    provider limits that. `prompt_tokens` counts the whole input, tool definitions included, `completion_tokens`
    the reserve for the reply counted on top of it. `shape` is "bytes" if the request was too large for the transport,
    which does not depend on the context window.
    """

    limit: int | None
    prompt_tokens: int | None
    completion_tokens: int | None
    shape: Literal["tokens", "bytes"] = "tokens"

    @property
    def reply_fills_window(self) -> bool:
        """Whether the reserve for the reply alone takes the limit: no smaller prompt can help."""
        return self.limit is not None and self.completion_tokens is not None and self.completion_tokens >= self.limit


@cache
def _table() -> dict[str, Any]:
    import tomllib

    return tomllib.loads((get_data(__package__, "refusals.toml") or b"").decode())


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    for part, expression in _PARTS.items():
        pattern = pattern.replace(part, expression)
    return re.compile(pattern, re.IGNORECASE)


def recognize(error: str | Mapping[str, Any]) -> ContextOverflow | None:
    """The overflow that an error reports, or None if the error is about something else.

    `error` is what the caller received: the text of an exception, a JSON body or its text, or a whole HTTP response
    with status and body, but no prompt and no reply. Rate limits, a `max_tokens` that is too large, single strings or
    images that are too large, and quotas are not overflows. Never raises. Of a long text only the ends are read.
    """
    table, text = _table(), _text_of(error)
    if not text or _compiled(table["rate_limit"]).search(text):
        return None
    shapes: tuple[Literal["tokens", "bytes"], ...] = ("tokens", "bytes")
    for shape in shapes:
        for _, pattern in table[shape]:
            match = _compiled(pattern).search(text)
            if match is None:
                continue
            numbers = {name: int(re.sub("[,_.]", "", digits)) for name, digits in match.groupdict().items() if digits}
            if "limit" not in numbers and any(_compiled(each).search(text) for each in table["look_alikes"]):
                return None
            limit, reply = numbers.get("limit") or None, numbers.get("reply")
            prompt = numbers["prompt"] + numbers.get("tools", 0) if "prompt" in numbers else numbers.get("least")
            # vLLM stops counting one token past what fits, and then reports that number instead of the prompt's.
            if "least" in numbers and prompt == (limit or 0) - (reply or 0) + 1:
                prompt = None
            return ContextOverflow(limit, prompt, reply, shape)
    return None


def _text_of(error: str | Mapping[str, Any]) -> str:
    """The text of an error in one line, without escapes: of an object its JSON, of a long text the ends."""
    try:
        text = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False, default=_plain)
    except (TypeError, ValueError, RecursionError):  # no JSON: no provider's error
        return ""
    if len(text) > 2 * MAX_END_LENGTH:
        text = f"{text[:MAX_END_LENGTH]}\n\n{text[-MAX_END_LENGTH:]}"
    text = re.sub(r"\\{1,8}u00([0-9a-fA-F]{2})", lambda match: chr(int(match[1], 16)), text)
    text = re.sub(r"\\{1,8}(?=[\"'`])", "", re.sub(r"\\{1,8}[nrt]", " ", text))
    return re.sub("[\\s\u2502]+", " ", re.sub("[\u2018\u2019]", "'", text)).strip()


def _plain(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes | bytearray) else str(value)
