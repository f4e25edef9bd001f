"""Sentences of prose, in any language, with code and markup taken out."""

from __future__ import annotations

import re

SCANNED = 40_000
"""Characters of one text that are split."""

_FENCED = re.compile(r"^[ \t]*(`{3,}|~{3,})", re.MULTILINE)
_BULLET = re.compile(r"^\s*(?:[-*+•>]|\d{1,3}[.)]|\[[ xX]\]|✅|❌|✓|✗|☐|☑)+\s+")
_END = re.compile(r"(?<=[.!?])[\"'”’)*_]{0,3}\s+(?=[^\sa-z])|(?<=[。！？])")
_MARKUP = re.compile(r"^#{1,6} |\*\*|__(?=\w)|(?<=\w)__")


def sentences(text: str) -> list[str]:
    """The sentences in order. Lines end sentences; bullets, headings' marks and bold are taken off; fenced
    code and table rows are left out."""
    found: list[str] = []
    for line in _without_code(text[:SCANNED]).split("\n"):
        if line.lstrip().startswith("|"):
            continue
        line = _MARKUP.sub("", _BULLET.sub("", line.strip())).strip()
        found += [part.strip() for part in _END.split(line) if part.strip()]
    return found


def _without_code(text: str) -> str:
    pieces = _FENCED.split(text)
    return "".join(pieces[0::4]) if len(pieces) > 1 else text
