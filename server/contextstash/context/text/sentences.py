"""Sentences of prose, in any language, with code and markup taken out."""

from __future__ import annotations

import re

from contextstash.context.text.imitations import is_speaker_line
from contextstash.context.text.quotations import without_blocks, without_quotations

SCANNED = 40_000
"""Characters of one text that are split."""

_BULLET = re.compile(r"^\s*(?:[-*+•>]|\d{1,3}[.)]|\[[ xX]\]|✅|❌|✓|✗|☐|☑)+\s+")
_END = re.compile(r"(?<=[.!?])[\"'”’)*_]{0,3}\s+(?=[^\sa-z])|(?<=[。！？])")
_MARKUP = re.compile(r"^#{1,6} |\*\*|__(?=\w)|(?<=\w)__")


def sentences(text: str) -> list[str]:
    """The sentences in order. Lines end sentences; bullets, headings' marks and bold are taken off; fenced
    code, block quotes and table rows are left out."""
    return _split(without_blocks(text[:SCANNED], indented=False))


def own_sentences(text: str) -> list[str]:
    """The sentences that an assistant says itself: what it quotes, and lines in which somebody else is made to speak,
    are left out."""
    return [sentence for sentence in _split(without_quotations(text[:SCANNED])) if not is_speaker_line(sentence)]


def _split(text: str) -> list[str]:
    found: list[str] = []
    for line in text.split("\n"):
        if line.lstrip().startswith("|"):
            continue
        line = _MARKUP.sub("", _BULLET.sub("", line.strip())).strip()
        found += [part.strip() for part in _END.split(line) if part.strip()]
    return found
