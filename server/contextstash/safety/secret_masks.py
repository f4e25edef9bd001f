"""Masks secrets in a text that is shown, found or summarized. Never in what a model edits or a provider is sent.

    >>> masked("PASSWORD=hunter2-X9")
    'PASSWORD=‹masked›•••'

A mask is as long as the secret, so that the places of everything else in the text stay as they are, and it has
characters that no key has: written back into a file or a command it fails, where half of a key might not.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic_core import SchemaValidator, core_schema

from contextstash.safety.sanitize import UNSEEN, encodable, folded
from contextstash.safety.secret_rules import RULES, Rule, span_of

FILL = "•"

SHOWN_FILL = 3
"""Characters of a mask's filling that a person or a model is shown; the rest of it says nothing."""

OPAQUE_FIELDS = frozenset(
    {"signature", "encrypted_content", "thoughtSignature", "thought_signature", "id", "call_id", "tool_use_id"}
    | {"tool_call_id", "uuid", "sha256", "handle"}
)
"""Fields of a message that a provider checks, or that name something: what is in them is never changed. `data` is one
of them in an object whose data are bytes."""

FREE_FIELDS = frozenset({"input", "arguments", "args", "functionResponse", "function_response"})
"""Fields that hold an object that a model or a tool made: no field in it is opaque, whatever its name."""

MIN_SECRET_NAME = 18
"""Characters of the shortest secret that could be the name of a variable, `sk_test_` and ten more; shorter names of an
object's fields are not searched."""

MAX_NAMED = 8_000
"""Characters of a string that may be secret by the name of its field: keys are shorter."""

THINKING = frozenset({"thinking", "redacted_thinking", "reasoning"})
"""Types of blocks that a provider's signature is about."""

_PRIVATE = r"(?is)<private>(.*?)(?:</private>|\Z)"
_CSI = r"[0-9;:?]*[A-Za-z]"
_LINK = r"\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)"
_WIDTHLESS = f"\x00\x08{UNSEEN}\ufe00-\ufe0f"
_INVISIBLE = rf"(?:\x1b\[|\x9b|\\{{1,4}}(?:u001[bB]|x1[bB]|033|e)\[){_CSI}|\x1b\([A-Z0-9]|{_LINK}|[{_WIDTHLESS}]"
"""Colours and links of a terminal, also as JSON and shells write their escapes, and characters without a width."""

_ESCAPED_QUOTES = r"\\+(?=[\"'])"
"""The escapes before quotes, of a shell, of JSON, or of both: what the argument of a call says is read without them."""

_UNREAD = re.compile(f"{_INVISIBLE}|{_ESCAPED_QUOTES}")
_MAY_BE_INVISIBLE = rf"[\x1b\x{{9b}}{_WIDTHLESS}]|(?:1[bB]|33|\\e)\["

_FILLING = f"{FILL}{{{SHOWN_FILL}}}[{FILL}\n]*{FILL}"


@dataclass(frozen=True, slots=True)
class Found:
    """A secret of a kind at a place of a text."""

    kind: str
    start: int
    end: int


@cache
def _gate() -> SchemaValidator:
    """Whether a text may hold a secret, by Rust's linear search: 2 ms for a million characters, where Python's own
    search takes 60 to 100 (measured over recorded sessions). pydantic's pattern is the one way to it that is installed
    anyway. It lets a little more through than the rules' gates, and is compiled faster, which each hook pays:
    repetitions are counted by copies of what they repeat, and digits of other scripts are hundreds of ranges."""
    gates = "|".join(f"(?:{each})" for each in (*(rule.gate for rule in RULES), "(?i-u:<private>)", _MAY_BE_INVISIBLE))
    pattern = re.sub(r"\{([01]),\d+\}", lambda match: "*+"[int(match[1])], gates).replace(r"\d", "[0-9]")
    return SchemaValidator(core_schema.str_schema(pattern=pattern, strict=True))


def may_hold_secrets(text: str) -> bool:
    """Whether `secrets_in` is worth asking; mostly not."""
    may_hold = _gate().isinstance_python
    has_escaped_quotes = '\\"' in text or "\\'" in text
    return may_hold(encodable(text)) or (has_escaped_quotes and may_hold(encodable(re.sub(_ESCAPED_QUOTES, "", text))))


def secrets_in(text: str) -> list[Found]:
    """The secrets in a text, in order, none within another."""
    if not may_hold_secrets(text):
        return []
    if _UNREAD.search(text) is None:
        return _apart(list(_secrets_in(text)))
    # With spaces in the place of what is invisible, which may be all that parts a key from a word; and without it.
    blanked = re.sub(_INVISIBLE, lambda match: " " * len(match[0]), text)
    return _apart([*_secrets_in(blanked), *_beneath(text)])


def _secrets_in(text: str) -> Iterator[Found]:
    """The secrets in a text that may hold some."""
    lower = folded(text)
    for rule in RULES:
        yield from _found_by(rule, text, lower if rule.folds else text)


def _found_by(rule: Rule, text: str, searched: str) -> Iterator[Found]:
    """What a rule finds at the places of its literals in a text. `searched` is the text as the rule compares it."""
    for literal in rule.literals:
        place = searched.find(literal)
        while place >= 0:
            begin = place - rule.back
            match = rule.pattern.match(text, begin) if begin >= 0 else None
            if match is not None and (rule.holds is None or rule.holds(match)):
                yield Found(rule.kind, *span_of(match))
            place = searched.find(literal, max(place + 1, match.end() if match else 0))


def _beneath(text: str) -> Iterator[Found]:
    """The secrets of a text with what is not read as a part of it taken out: colours, escapes before quotes."""
    pieces, places, taken, place = [], [0], [0], 0
    for match in _UNREAD.finditer(text):
        pieces.append(text[place : match.start()])
        place = match.end()
        places.append(match.start() - taken[-1])
        taken.append(place - places[-1])

    def back(place: int) -> int:
        return place + taken[bisect_right(places, place) - 1]

    for each in _secrets_in("".join([*pieces, text[place:]])):
        yield Found(each.kind, back(each.start), back(each.end - 1) + 1)


def _apart(found: list[Found]) -> list[Found]:
    apart: list[Found] = []
    for each in sorted(found, key=lambda each: (each.start, -each.end)):
        if not apart or each.start >= apart[-1].end:
            apart.append(each)
        elif each.end > apart[-1].end:
            apart[-1] = Found(apart[-1].kind, apart[-1].start, each.end)
    return apart


def masked(text: str, *, private: bool = False) -> str:
    """The text with a mask of the same length in the place of each secret, and with `private` also of what stands in
    `<private>…</private>`."""
    found = secrets_in(text)
    if private and "<" in text:
        hidden = [Found("private", *match.span(1)) for match in re.finditer(_PRIVATE, text) if match[1]]
        found = _apart([*found, *hidden]) if hidden else found
    if not found:
        return text
    pieces, place = [], 0
    for each in found:
        pieces += [text[place : each.start], _mask(each.kind, text[each.start : each.end])]
        place = each.end
    return "".join([*pieces, text[place:]])


def _mask(kind: str, secret: str) -> str:
    """Line breaks stay, so that a text has as many lines as before."""
    label = next((label for label in (f"‹{kind}: masked›", "‹masked›") if len(label) <= len(secret)), "")
    if "\n" in secret[: len(label)]:
        label = ""
    return label + "".join("\n" if each == "\n" else FILL for each in secret[len(label) :])


def shown(text: str, *, private: bool = False) -> str:
    """The text as a person or a model reads it in a list, a summary or a page: masked, with masks as short as their
    words."""
    found = masked(text, private=private)
    return re.sub(_FILLING, FILL * SHOWN_FILL, found) if FILL in found and found is not text else found


def has_mask(text: str) -> bool:
    """Whether a text has a mask, or the filling of one, in it."""
    return "masked›" in text or FILL * SHOWN_FILL in text


def masked_value(value: Any, *, bound: bool = False) -> Any:
    """A JSON value with the secrets in its strings and keys masked; but not in its OPAQUE_FIELDS, nor, with `bound`, in
    thinking, which a signature is about. The value itself if it has none."""
    return _masked(value, "", bound, False)


def _masked(value: Any, name: str, bound: bool, free: bool) -> Any:
    if isinstance(value, str):  # also secret by the name of its field, as the value of an assignment is
        named = masked(f'{name}="{value}"')[len(name) + 2 : -1] if name and len(value) < MAX_NAMED else value
        return masked(value) if named == value else named
    if isinstance(value, dict):
        is_bound = bound and not free and value.get("type") in THINKING
        return value if is_bound else _masked_object(value, name, bound, free)
    if isinstance(value, list):
        items = [_masked(each, name, bound, free) for each in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return value


def _masked_object(value: dict[str, Any], name: str, bound: bool, free: bool) -> dict[str, Any]:
    free = free or name in FREE_FIELDS
    children: dict[str, Any] = {}
    for key, each in value.items():
        shown_key = key if len(key) < MIN_SECRET_NAME and key.isidentifier() else masked(key)
        while shown_key in children:
            shown_key += FILL
        children[shown_key] = each if not free and _is_opaque(value, key) else _masked(each, key, bound, free)
    return value if all(key in children and children[key] is value[key] for key in value) else children


def _is_opaque(owner: dict[str, Any], key: str) -> bool:
    """Whether a provider made or checks the field. Its `data` are bytes in an image of Anthropic, in hidden thinking,
    and beside a media type (Gemini, MCP) or the format of a sound (OpenAI)."""
    if key != "data":
        return key in OPAQUE_FIELDS
    is_bytes = owner.get("type") in ("base64", "redacted_thinking")
    return is_bytes or any(each in owner for each in ("mimeType", "mime_type", "format"))
