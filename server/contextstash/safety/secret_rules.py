"""The kinds of secrets of secret_forms.txt, each with the beginning by which a text is searched for it quickly, and
the checks that tell a secret from a name, a word, an example."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pkgutil import get_data

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
_IDENTIFIER = r"(?:[A-Z]?[a-z]{2,}|\d{1,2}|[._-])+"
_CODE = r"[A-Za-z_][\w]*(?:(?:\.|->|::)[A-Za-z_]\w*)*"
_CAMEL_CASE = r"[a-z]*(?:[A-Z]+[a-z]{2,}|[A-Z]{2,})*"
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
