"""Finds facts in a text: paths, identifiers, quoted strings, error lines, ids and measured numbers. Linear in the
length of the text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from contextstash.context.text.sanitize import one_line
from contextstash.context.tool_outputs.run_outcomes import error_lines

MAX_SCANNED = 600_000
"""How many characters are searched; of a longer text, both ends. It is about 150,000 tokens."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of each kind, each once, in order of first occurrence."""

    paths: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()
    quotes: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()

    def names(self) -> tuple[str, ...]:
        """Paths, identifiers, quoted strings and ids together."""
        return tuple(dict.fromkeys((*self.paths, *self.identifiers, *self.quotes, *self.ids)))


_URL = re.compile(r"\bhttps?://[^\s\"'<>)\]}`\\]{3,300}")
_PATH = re.compile(
    r"(?<![\w/.@+~:\\-])(?:~|\.{1,2})?/?(?:[\w.@+-]{1,80}/){1,20}[\w.@+-]{0,79}\w"
    r"|(?<![\w/.@+~-])/[\w.@+-]{1,79}\w"
    r"|(?<![\w/.@+~-])[\w-]{1,60}(?:\.[\w-]{1,20}){0,2}\.(?:[a-z]{1,4}|[jt]sx?|json[lc5]?|ya?ml|toml|java|swift|proto)\b(?!\()"
)
_IDENTIFIER = re.compile(r"(?<![\w$])[A-Za-z_$][\w$]{2,79}(?:(?:\.|::|->)[A-Za-z_]\w{1,59}){0,5}(?![\w$])")
_SHAPED = re.compile(r"[a-z0-9][A-Z]|[A-Za-z0-9]_[A-Za-z0-9]|[a-z]\w*(?:\.|::|->)\w|[A-Z]{2,}\d|\w\(")
_QUOTED = re.compile(r"\"([^\"\n\\]{3,80})\"|(?<!\w)'([^'\n\\]{3,80})'(?!\w)|`([^`\n]{3,80})`")
_ID = re.compile(
    r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b|\b(?=[0-9a-f]{0,39}\d)(?=[0-9a-f]{0,39}[a-f])[0-9a-f]{7,40}\b"
    r"|\b[A-Z]{2,10}-\d{1,7}\b|(?<![\w&])#[A-Z]{0,3}\d{1,9}\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"(?<![\w.])\d{1,12}(?:[.,]\d{1,9}){0,4} ?"
    r"(?:%|ms|µs|ns|s|min|h|[KMGT]i?B|bytes|kB|px|USD|EUR|tokens?|lines?)(?!\w)"
)


def find_facts(text: str, most: int = 1_000) -> Facts:
    """The facts of a text, at most `most` of each kind."""
    if len(text) > MAX_SCANNED:
        text = f"{text[: MAX_SCANNED // 2]}\n{text[-MAX_SCANNED // 2 :]}"
    urls = [match.group().rstrip(".,;:") for match in _URL.finditer(text)]
    paths = [*urls, *_found(_PATH, _URL.sub(" ", text) if urls else text)]
    identifiers = (name for name in _found(_IDENTIFIER, text) if _SHAPED.search(name))
    quotes = (next(filter(None, groups)) for groups in _QUOTED.findall(text))
    return Facts(
        paths=_first(paths, most),
        identifiers=_first(identifiers, most),
        quotes=_first((one_line(quote, 80) for quote in quotes), most),
        errors=tuple(error_lines(text, 5)),
        ids=_first(_found(_ID, text), most),
        numbers=_first(_found(_NUMBER, text), most),
    )


def _found(pattern: re.Pattern[str], text: str) -> Iterable[str]:
    return (match.group() for match in pattern.finditer(text))


def _first(found: Iterable[str], most: int) -> tuple[str, ...]:
    facts: dict[str, None] = {}
    for fact in found:
        facts[fact] = None
        if len(facts) == most:
            break
    return tuple(facts)
