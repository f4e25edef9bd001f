"""Recognizes the error with which a provider refuses a request that exceeds its context window, and its numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from contextstash.window.overflow_patterns import (
    LOOK_ALIKES,
    NAMED_PROVIDERS,
    NEAR_AN_ERROR,
    OPENAI_COMPATIBLE,
    STATUS_OF_A_RATE_LIMIT,
    WORDINGS,
    SizeUnit,
    Wording,
    compiled,
)

MAX_END_LENGTH = 4_000
"""How much of each end of a text is searched: the refusal comes first, or last after a traceback."""

MAX_JSON_LENGTH = 200_000
"""Longest JSON text that is parsed, in characters; of a longer one the ends are searched as text. It bounds the
time."""

MAX_BARE_TEXT_LENGTH = 1_000
"""A text up to this length, in characters, is taken for the error itself. In a longer one a word such as "error" must
be near the match, since it may only quote a refusal."""

# Bounds on the time that a hostile or huge error takes; what is beyond them is not searched.
_MAX_TEXT_LENGTH = 8 * MAX_END_LENGTH
_MAX_PARTS = 64
_MAX_MENTIONS = 8
_MAX_DEPTH = 12

_MAX_DISTANCE = 250
"""How far from a match a word such as "error" may be, in characters: about two sentences."""

_ERROR_FIELDS = frozenset({
    "body", "cause", "choices", "code", "data", "description", "detail", "details", "error", "errorcode",
    "errormessage", "errors", "errortype", "exception", "finishreason", "httpstatus", "httpstatuscode",
    "incompletedetails", "innererror", "lasterror", "message", "metadata", "msg", "name", "nctx",
    "nprompttokens", "object", "providername", "raw", "reason", "response", "responsebody", "status",
    "statuscode", "stopreason", "text", "title", "type",
})  # fmt: skip
"""Fields of errors that can describe the problem, in lower case without dash and underscore; other fields may quote a
prompt."""

_STOP_FIELDS = frozenset({"stopreason", "finishreason"})

_CONTENT_TYPES = frozenset({"text", "input_text", "output_text", "tool_result", "tool_use", "thinking"})

_ESCAPED = re.compile(r"\\{1,8}u00([0-9a-fA-F]{2})")
_ESCAPED_BREAK = re.compile(r"\\{1,8}[nrt]")
_QUOTE_ESCAPES = re.compile(r"\\{1,8}(?=[\"'`])")
_CURLY = re.compile("[\u2018\u2019]")
_SPACE = re.compile("[\\s\u2502]+")
_SEPARATORS = re.compile(r"[,_.]")


@dataclass(frozen=True, slots=True)
class ContextOverflow:
    """A provider's refusal of a request that is too large; a number that it does not contain is None.

    `provider` is the one that responded (a gateway rather than the model behind it), "unknown" if the error does not
    name it.
    `limit` is the limit in tokens that refused the request: the model's context length, or its largest
    prompt if the provider limits that. `prompt_tokens` counts the whole input, tool definitions
    included, `completion_tokens` the reserve for the reply counted on top of it. `shape` is "bytes"
    if the request was too large for the transport, which does not depend on the context window.
    """

    provider: str
    limit: int | None
    prompt_tokens: int | None
    completion_tokens: int | None
    shape: SizeUnit = "tokens"

    @property
    def reply_fills_window(self) -> bool:
        """Whether the reserve for the reply alone takes the limit: no smaller prompt can help."""
        return self.limit is not None and self.completion_tokens is not None and self.completion_tokens >= self.limit


def recognize(error: str | Mapping[str, Any]) -> ContextOverflow | None:
    """The overflow that an error reports, or None if the error is about something else.

    `error` is what the caller received: the text of an exception, a JSON body or its text, or a whole HTTP response
    with status and body. Rate limits, a `max_tokens` that is too large, single strings or images that are too large,
    and quotas are not overflows. Never raises. Of a long text only the ends are read.
    """
    text = _text_of(error)
    if not text or compiled(STATUS_OF_A_RATE_LIMIT).search(text):
        return None
    found = _first_wording(text)
    if found is None:
        return None
    wording, match = found
    numbers = _numbers(match)
    if "limit" not in numbers and any(compiled(look_alike).search(text) for look_alike in LOOK_ALIKES):
        return None
    return ContextOverflow(
        provider=_provider(wording, text),
        limit=numbers.get("limit") or None,
        prompt_tokens=_prompt_tokens(numbers),
        completion_tokens=numbers.get("reply"),
        shape=wording.shape,
    )


def _first_wording(text: str) -> tuple[Wording, re.Match[str]] | None:
    for wording in WORDINGS:
        for match in islice(compiled(wording.pattern).finditer(text), _MAX_MENTIONS):
            if _is_in_an_error(text, match):
                return wording, match
    return None


def _is_in_an_error(text: str, match: re.Match[str]) -> bool:
    if len(text) <= MAX_BARE_TEXT_LENGTH:
        return True
    before = text[max(0, match.start() - _MAX_DISTANCE) : match.start()]
    after = text[match.end() : match.end() + _MAX_DISTANCE]
    return compiled(NEAR_AN_ERROR).search(f"{before}\n{after}") is not None


def _numbers(match: re.Match[str]) -> dict[str, int]:
    groups = match.groupdict()
    return {name: int(_SEPARATORS.sub("", digits)) for name, digits in groups.items() if digits}


def _prompt_tokens(numbers: Mapping[str, int]) -> int | None:
    if "least" in numbers:
        # vLLM stops counting one token past what fits, and then reports that number instead of the prompt's.
        one_too_many = numbers.get("limit", 0) - numbers.get("reply", 0) + 1
        return numbers["least"] if numbers["least"] != one_too_many else None
    if "prompt" not in numbers:
        return None
    return numbers["prompt"] + numbers.get("tools", 0)


def _provider(wording: Wording, text: str) -> str:
    if not wording.shared:
        return wording.provider
    patterns = NAMED_PROVIDERS + OPENAI_COMPATIBLE if wording.provider == "openai" else NAMED_PROVIDERS
    return next((name for name, pattern in patterns if compiled(pattern).search(text)), wording.provider)


def _text_of(error: object) -> str:
    """The text of an error in one line, its fields as `name: value`."""
    lines: list[str] = []
    budget = _MAX_TEXT_LENGTH
    for line in islice(_lines(error, "", 0), _MAX_PARTS):
        lines.append(line)
        budget -= len(line)
        if budget <= 0:
            break
    return _plain("\n".join(lines))


def _lines(value: object, field: str, depth: int) -> Iterator[str]:
    if depth > _MAX_DEPTH or value is None or isinstance(value, bool):
        return
    if isinstance(value, bytes | bytearray):
        value = value[:MAX_JSON_LENGTH].decode("utf-8", "replace")
    if isinstance(value, str):
        parsed = _parsed(value)
        if parsed is None:
            yield f"{field}: {_ends(value)}" if field else _ends(value)
        else:
            yield from _lines(parsed, field, depth + 1)
    elif isinstance(value, int):
        yield f"{field}: {_short(value)}"
    elif isinstance(value, Mapping):
        for name, part in _error_fields(value):
            yield from _lines(part, name, depth + 1)
    elif isinstance(value, Sequence):
        for part in islice(value, _MAX_PARTS):
            yield from _lines(part, field, depth + 1)


def _error_fields(value: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """The fields of an object that can contain a refusal; of a message only the reason why it stopped."""
    kind = value.get("type")
    if isinstance(kind, str) and kind in _CONTENT_TYPES:
        return
    fields = _STOP_FIELDS if "role" in value else _ERROR_FIELDS
    for name, part in islice(value.items(), _MAX_PARTS):
        if isinstance(name, str) and name.lower().replace("_", "").replace("-", "") in fields:
            yield name, part


def _parsed(text: str) -> Mapping[str, Any] | Sequence[Any] | None:
    """The object or list in a JSON text, else None."""
    if len(text) > MAX_JSON_LENGTH or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def _short(value: int) -> str:
    return str(value) if -(10**12) < value < 10**12 else ""


def _ends(text: str) -> str:
    return text if len(text) <= 2 * MAX_END_LENGTH else f"{text[:MAX_END_LENGTH]}\n\n{text[-MAX_END_LENGTH:]}"


def _plain(text: str) -> str:
    text = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)
    text = _QUOTE_ESCAPES.sub("", _ESCAPED_BREAK.sub(" ", text))
    return _SPACE.sub(" ", _CURLY.sub("'", text)).strip()
