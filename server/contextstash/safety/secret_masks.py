"""Masks secrets in a text that is shown, found or summarized. Never in what a model edits or a provider is sent.

    >>> masked("PASSWORD=hunter2-X9")
    'PASSWORD=‹masked›•••'

A mask is as long as the secret, so that the places of everything else in the text stay as they are, and it has
characters that no key has: written back into a file or a command it fails, where half of a key might not. The kinds of
secrets are in secret_forms.txt, each with the beginning by which a text is searched for it quickly; the checks that
tell a secret from a name, a word, an example are here.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pkgutil import get_data
from typing import Any

from pydantic_core import SchemaValidator, core_schema

from contextstash.safety.sanitize import UNSEEN, folded

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
    return SchemaValidator(core_schema.str_schema(pattern=pattern))


def may_hold_secrets(text: str) -> bool:
    """Whether `secrets_in` is worth asking; mostly not."""
    readings = [text, re.sub(_ESCAPED_QUOTES, "", text)] if '\\"' in text or "\\'" in text else [text]
    return any(_gate().isinstance_python(each.encode("utf-8", "replace")) for each in readings)


def secrets_in(text: str, *, private: bool = False) -> list[Found]:
    """The secrets in a text, in order, none within another."""
    if not may_hold_secrets(text):
        return []
    if _UNREAD.search(text) is None:
        found = list(_secrets_in(text))
    else:
        # With spaces in the place of what is invisible, which may be all that parts a key from a word; and without it.
        blanked = re.sub(_INVISIBLE, lambda match: " " * len(match[0]), text)
        found = [*_secrets_in(blanked), *_beneath(text)]
    if private:
        found += [Found("private", *match.span(1)) for match in re.finditer(_PRIVATE, text) if match[1]]
    return _apart(found)


def _secrets_in(text: str) -> Iterator[Found]:
    """The secrets in a text that may hold some: what each rule finds at the places of its literals."""
    lower = folded(text)
    for rule in RULES:
        searched = lower if rule.folds else text
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
    pieces, place = [], 0
    for each in secrets_in(text, private=private):
        pieces += [text[place : each.start], _mask(each.kind, text[each.start : each.end])]
        place = each.end
    return "".join([*pieces, text[place:]]) if pieces else text


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
        shown_key = masked(key)
        while shown_key in children:
            shown_key += FILL
        children[shown_key] = each if not free and _is_providers(value, key) else _masked(each, key, bound, free)
    return value if all(key in children and children[key] is value[key] for key in value) else children


def _is_providers(owner: dict[str, Any], key: str) -> bool:
    """Whether a provider made or checks the field. Its `data` are bytes in an image of Anthropic, in hidden thinking,
    and beside a media type (Gemini, MCP) or the format of a sound (OpenAI)."""
    if key != "data":
        return key in OPAQUE_FIELDS
    is_bytes = owner.get("type") in ("base64", "redacted_thinking")
    return is_bytes or any(each in owner for each in ("mimeType", "mime_type", "format"))


# The kinds of secrets.

MIN_OPAQUE, MIN_SHORT, MIN_LETTERS = 16, 8, 24
"""Characters from which on letters and digits by chance are taken for a key because of a name before them; those of a
shorter value, which has to be more of a mixture: `tok9Xw2q`, but not `node18` or `step_2`; and letters alone, of which
one in 300 random keys of 32 characters consists: these must be no camelCase."""

MIN_SHORT_BITS, MIN_BITS, MIN_LETTER_BITS, MIN_BASE64_BITS = 2.3, 3.0, 4.0, 4.2
"""Bits of entropy for each character of a shorter value, of one, of letters alone, and of base64 of 32 characters and
more. Random text of 16 characters has 3.5 and more, words of a language below 3; 8 different characters 3; 24 random
letters of both cases 4.2 and more, a name of the length 3.5 to 3.9; random base64 4.4 to 5.5."""

GATE_CHARACTERS, SHAPE_CHARACTERS = 10, 16
"""Of what follows a key's beginning, when a text is searched for texts that may hold one: with fewer, more texts are
searched rule by rule. Of kinds with a form of their own the beginnings are shorter."""

MAX_COMMAND = 400
"""Characters between a command's name and its login, as UP_TO has them; of a longer command it is not masked."""

# Expressions as text: Python compiles each at its first use, which most processes do not come to.
_DUMMY_BEGINNINGS = ("$", "%", "{", "<", "*", "xxx", "..", "env.", "env:", "process.", "os.")
_DUMMY_WORDS = ("example", "your_", "your-", "changeme", "change_me", "placeholder", "redacted", "dummy")
_PLAIN_PASSWORD = r"(?i)(?:pass(?:word|wd)?|pwd|secret|user|token|none|null|true|false|undefined)\d{0,3}"
_WORD = r"(?:[A-Za-z][a-z]*|[A-Z]+|v?\d+(?:\.\d+)*)"
_NAME_PART = r"(?:^|[-_])[A-Za-z][a-z]{2,}(?:[-_]|$)"
_DATED = r"(?i)[\dTZ:.+-]+|0x[0-9a-f]+|v?\d+(?:[.-]\w+)+|[0-9a-f]{7,12}|[a-z]+[-_]?[a-z]*\d+[a-z]?"
_IDENTIFIER = r"(?:[A-Z]?[a-z]{2,}+|\d++|[._-])++"
_CODE = r"[A-Za-z_][\w]*(?:(?:\.|->|::)[A-Za-z_]\w*)*"
_CAMEL_CASE = r"[a-z]*+(?:[A-Z]++[a-z]{2,}+|[A-Z]{2,}+)*+"
_SETTERS = ("set", "with", "add", "put")
"""Beginnings of the names of functions that are given a secret; other functions ask for one by its name."""

_NOT_SECRET_WORDS = (
    "page", "continu", "cursor", "count", "limit", "max", "num", "total", "type", "usage", "budget", "public",
    "tokeniz", "tokens", "csrf", "hash", "sha1", "sha2", "sha5", "fingerprint", "checksum", "cache_key", "cachekey",
    "path", "file", "name", "url", "length", "expir", "hint", "placeholder",
)  # fmt: skip
"""In names of things that are not secret, such as an account; as words, since an expression takes 0.2 ms to compile."""


@dataclass(frozen=True)
class Rule:
    """A kind of secret. `gate` finds texts that may hold one, in the syntax of Rust's expressions; `pattern` matches at
    the place of one of the `literals`, and its group `v`, `w`, `x` or `y` is the secret itself, or else the whole
    match. `holds` looks at the name before it, the value and what follows it. The pattern begins `back` characters
    before the literal; with `folds` letters of both cases are equal."""

    kind: str
    literals: tuple[str, ...]
    expression: str
    gate: str
    holds: Callable[[re.Match[str]], bool] | None = None
    folds: bool = False
    back: int = 0

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Compiled when a text may hold one: all of them together take longer than a client's hook may."""
        return re.compile(self.expression, re.IGNORECASE if self.folds else 0)


def span_of(found: re.Match[str]) -> tuple[int, int]:
    """Where the secret of a match is."""
    names = found.re.groupindex
    return next((found.span(each) for each in "vwxy" if each in names and found[each] is not None), found.span())


def value_of(found: re.Match[str]) -> str:
    """The secret of a match."""
    start, end = span_of(found)
    return found.string[start:end]


def bits(value: str) -> float:
    """The entropy of a value's characters, in bits for each."""
    return -sum(n / len(value) * math.log2(n / len(value)) for n in Counter(value).values())


def _is_mixed(value: str) -> bool:
    """Whether it has letters and digits in one of its parts: an identifier, a path and a version do not."""
    parts = [part for part in re.split(r"[-_./:@+=~]", value) if part]
    return any(not re.fullmatch(_WORD, part) and len(part) > 3 for part in parts)


def _is_dummy(value: str) -> bool:
    """Whether a value only stands for one, as in an example or a template."""
    lower = value.lower()
    return lower.startswith(_DUMMY_BEGINNINGS) or any(word in lower for word in _DUMMY_WORDS)


def _is_plain_name(name: str) -> bool:
    """Whether a name with a word for a secret in it is one of something else."""
    lower = name.lower().replace("account", "acc")
    return lower.endswith("_id") or any(word in lower for word in _NOT_SECRET_WORDS)


def _is_opaque(value: str) -> bool:
    parts = re.split(r"[-_+/=]", value)
    if len(value) >= MIN_LETTERS and "".join(parts).isalpha():
        return bits(value) >= MIN_LETTER_BITS and not all(re.fullmatch(_CAMEL_CASE, part) for part in parts)
    has_both = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return len(value) >= MIN_OPAQUE and has_both and bits(value) >= MIN_BITS and _is_mixed(value)


def _is_short_key(value: str) -> bool:
    """Whether 8 to 15 characters are no word, name, number or date: letters of both cases and digits take turns."""
    if not MIN_SHORT <= len(value) < MIN_OPAQUE or bits(value) < MIN_SHORT_BITS or re.fullmatch(_DATED, value):
        return False
    turns = len(re.findall(r"(?=[0-9][A-Za-z]|[a-z][0-9A-Z]|[A-Z][0-9])", value))
    return any(c.isdigit() for c in value) and turns + sum(c.isdigit() for c in value) // 2 >= 3 and _is_mixed(value)


def _is_password(value: str) -> bool:
    if re.fullmatch(_PLAIN_PASSWORD, value) or len(value) < 6 or value[0] in "/. " or value[-1] == " ":
        return False
    kinds = sum(any(test(c) for c in value) for test in (str.isdigit, str.islower, str.isupper))
    symbols = any(not c.isalnum() and c not in "_.-" for c in value)
    return (kinds + symbols >= 2 and not re.fullmatch(_CODE, value)) or (kinds >= 2 and any(c.isdigit() for c in value))


def _assigned(found: re.Match[str]) -> bool:
    """Whether a value stands for itself, under a name that says that it is secret."""
    value, text, end = value_of(found), found.string, span_of(found)[1]
    start = found.start()
    while start > 0 and found.start() - start < 40 and (text[start - 1].isalnum() or text[start - 1] in "_-."):
        start -= 1
    name = text[start : found.end("n")]
    between = found.groupdict().get("b") or ""
    is_call = "(" in between
    if _is_plain_name(name) or _is_dummy(value) or text[end : end + 1] in ("(", "[", "{"):
        return False
    if is_call and not name.rpartition(".")[2].lower().startswith(_SETTERS):
        return False
    if found.groupdict().get("y"):
        return (
            not re.search(_NAME_PART, value)
            and not _is_path(f"/{value}" if "/" in value else value)
            and _is_opaque(value)
        )
    value = value.rstrip(".!?:")
    if between.strip(" \t:") == "is" and re.fullmatch(_IDENTIFIER, value):
        return False  # "the password is hashed2times"
    if re.search(r"(?i)passw|passphrase|pwd|_pass$", name) and "\n" not in value:
        return _is_password(value)
    is_whole = "://" not in value and " " not in value and not _is_path(value)
    is_code = re.fullmatch(_IDENTIFIER, value) and ("." in value or len(value) < MIN_OPAQUE)
    return is_whole and not is_code and (_is_opaque(value) or _is_short_key(value))


def _is_named(found: re.Match[str]) -> bool:
    """Whether the variable that a command sets has a secret's name, and its value stands for itself."""
    return any(name in found["n"].lower() for name in _NAMES) and _assigned(found)


def _is_path(value: str) -> bool:
    """Base64 can begin with a slash too; a path of its length has fewer bits, as its parts are words."""
    is_base64 = re.fullmatch(r"[A-Za-z0-9+/]{32,}={0,2}", value) is not None and bits(value) >= MIN_BASE64_BITS
    return value[:1] in "/." and not is_base64


def _signed_in(found: re.Match[str]) -> bool:
    """Whether the password of an address stands for itself."""
    value = value_of(found)
    return not (_is_dummy(value) or re.fullmatch(_PLAIN_PASSWORD, value))


def _is_opaque_value(found: re.Match[str]) -> bool:
    value = value_of(found)
    return not _is_dummy(value) and not _is_path(value) and _is_opaque(value)


def _is_address_token(found: re.Match[str]) -> bool:
    """Whether what stands before a host's name is a token, and no user's name."""
    return _is_opaque_value(found) or _is_short_key(value_of(found))


def _is_login(found: re.Match[str]) -> bool:
    """Whether the value behind `-u name:` is a password: `--user node:nodejs` names a group. curl takes no other."""
    line = found.string[max(0, found.start() - MAX_COMMAND) : found.start()].rpartition("\n")[2]
    value = value_of(found)
    return _signed_in(found) and (_is_password(value) or ("curl" in line and not value.isdigit()))


def _basic(found: re.Match[str]) -> bool:
    try:
        decoded = base64.b64decode(found["v"] + "=" * (-len(found["v"]) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return False
    return ":" in decoded and decoded.isprintable()


def _is_mixed_match(found: re.Match[str]) -> bool:
    return any(c.isdigit() for c in found[0]) and _is_mixed(found[0])


_CHECKED = (
    _assigned, _basic, _is_address_token, _is_login, _is_mixed_match, _is_named, _is_opaque_value, _signed_in,
)  # fmt: skip
_CHECKS = {each.__name__.removeprefix("_"): each for each in _CHECKED}
"""The checks by their names in the table."""

_NO_WORD_BEFORE = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
"""In JSON, where a call's arguments stand, a line break is a letter too."""


def _begins(kind: str, literals: str, rest: str, check: str = "") -> Rule:
    """The gate looks at GATE_CHARACTERS of the rest: each further one takes time to compile."""
    each = tuple(literals.split())
    begin = f"(?:{'|'.join(map(re.escape, each))})"
    gate = f"{begin}{re.sub(r'{.*', '', rest)}{{{GATE_CHARACTERS}}}".replace(r"\-", "-")
    return Rule(kind, each, f"{_NO_WORD_BEFORE}{begin}{rest}", gate, _CHECKS.get(check))


def _shape(kind: str, literals: str, expression: str, back: str = "") -> Rule:
    """The gate of one that begins before its literal is the literal: a counted class before it makes the search of all
    texts fifty times slower (measured). Otherwise it looks at SHAPE_CHARACTERS of the last class."""
    each = tuple(literals.split())
    gate = re.sub(r"\{\d+(?:,\d+)?\}[^{]*$", f"{{{SHAPE_CHARACTERS}}}", expression)
    before = "(?<![A-Za-z0-9])" if back or each[0][0].isalnum() else ""
    expression = f"{before}{expression}(?![A-Za-z0-9])"
    return Rule(kind, each, expression, re.escape(literals) if back else gate, back=int(back or 0))


def _form(
    kind: str, literals: str, expression: str, gate: str, check: str = "", folds: str = "", back: str = ""
) -> Rule:
    return Rule(kind, tuple(literals.split("|")), expression, gate, _CHECKS.get(check), bool(folds), int(back or 0))


def _read() -> Iterator[Rule]:
    """The rules of the table."""
    parts: dict[str, str] = {}
    readers: dict[str, Callable[..., Rule]] = {"begins": _begins, "shape": _shape, "form": _form}
    text = (get_data(__package__, "secret_forms.txt") or b"").decode()
    for line in (each for each in text.split("\n") if not each.startswith("#")):
        first, *fields = re.sub(r"\{([A-Z_]+)\}", lambda name: parts[name[1]], line).split("\t")
        if fields:
            yield readers[first](*fields)
        elif " = " in line:
            name, _, parts[name] = first.partition(" = ")


RULES = tuple(_read())
_NAMES = next(rule.literals for rule in RULES if "_key" in rule.literals)
"""The beginnings of the names of secrets, by which what is assigned to one is found."""
