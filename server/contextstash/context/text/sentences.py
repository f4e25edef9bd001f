"""Splits prose in any language into sentences, without code and markup."""

from __future__ import annotations

import re

from contextstash.context.text.imitations import is_speaker_line
from contextstash.context.text.quotations import without_blocks, without_quotations

MAX_SCANNED = 40_000
"""How many characters of one text are split, about 10,000 tokens. A guess: longer texts are pasted, not written."""

_BULLET = re.compile(r"^\s*(?:[-*+•>]|\d{1,3}[.)]|\[[ xX]\]|✅|❌|✓|✗|☐|☑)+\s+")
_END = re.compile(r"(?<=[.!?])[\"'”’)*_]{0,3}\s+(?=[^\sa-z])|(?<=[。！？])")
_MARKUP = re.compile(r"^#{1,6} |\*\*|__(?=\w)|(?<=\w)__")


def sentences(text: str) -> list[str]:
    """The sentences in order. The end of a line ends a sentence. Bullets, heading marks and bold marks are removed;
    fenced code, block quotes and table rows are left out."""
    return _split(without_blocks(text[:MAX_SCANNED], indented=False))


def own_sentences(text: str) -> list[str]:
    """The sentences that are the author's own: without quotations and without lines that begin with a speaker's
    label."""
    return [sentence for sentence in _split(without_quotations(text[:MAX_SCANNED])) if not is_speaker_line(sentence)]


def _split(text: str) -> list[str]:
    found: list[str] = []
    for line in text.split("\n"):
        if line.lstrip().startswith("|"):
            continue
        line = _MARKUP.sub("", _BULLET.sub("", line.strip())).strip()
        found += [part.strip() for part in _END.split(line) if part.strip()]
    return found
