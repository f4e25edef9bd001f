"""Splits prose in any language into sentences, without code and markup."""

from __future__ import annotations

import re
from collections.abc import Iterator

from contextstash.safety.imitations import is_speaker_line

MAX_SCANNED = 40_000
"""How many characters of one text are split, about 10,000 tokens. Longer texts are pasted, not written; their
rest is not read."""

_BULLET = re.compile(r"^\s*(?:(?:[-*+•>]|\d{1,3}[.)]|\[[ xX]\]|✅|❌|✓|✗|☐|☑)+\s+)+")
_END = re.compile(r"(?<=[.!?])[\"'”’)*_]{0,3}\s+(?=[^\sa-z])|(?<=[。！？])")
_MARKUP = re.compile(
    r"(?P<code>`[^`]+`)|^#{1,6} "
    r"|(?<!\w)(?P<mark>\*\*|__(?=[^_]{0,80} ))(?=\S)(?P<bold>.{1,300}?)(?<=\S)(?P=mark)(?!\w)"
)
"""Code spans, which stay as they are, and marks: in `**kwargs` and `__name__` they are a part of the name."""


def sentences(text: str) -> list[str]:
    """The sentences in order. The end of a line ends a sentence. Bullets, heading marks and bold marks are removed;
    fenced code, block quotes and table rows are left out."""
    return _split(without_blocks(text[:MAX_SCANNED], indented=False))


def own_sentences(text: str, *, rows: bool = False) -> list[str]:
    """The sentences that are the author's own: without quotations and without lines that begin with a speaker's
    label. With `rows`, each row of a table is one."""
    own = _split(without_quotations(text[:MAX_SCANNED]), rows=rows)
    return [sentence for sentence in own if not is_speaker_line(sentence)]


def _sets_off(line: str) -> bool:
    """Whether a line only sets off a passage, such as `★ Insight ─────`."""
    bare = line.strip(" \t`*_")
    return bool(bare) and (not bare.strip("-─━═") or (bare[0] in "★✶" and bare[-1] in "─━"))


def _split(text: str, *, rows: bool = False) -> list[str]:
    found: list[str] = []
    for line in text.split("\n"):
        if line.lstrip().startswith("|"):
            found += [line.strip()] if rows and line.strip("|:- \t") else []
            continue
        if _sets_off(line):
            continue
        line = _BULLET.sub("", _MARKUP.sub(_plain, line.strip())).strip()
        found += [part.strip() for part in _END.split(line) if part.strip()]
    return found


def _plain(match: re.Match[str]) -> str:
    return match["code"] or (_MARKUP.sub(_plain, match["bold"]) if match["bold"] else "")


_FENCE = re.compile(r"^[ \t]*(?:[-*+>][ \t]+|\d{1,3}[.)][ \t]+){0,4}(?P<mark>`{3,}|~{3,})(?P<info>.*)$")
_QUOTE = re.compile(r"^[ \t]*(?:[-*+][ \t]+|\d{1,3}[.)][ \t]+){0,4}>")
_INDENTED = re.compile(r"^(?: {4,}|[ ]{0,3}\t)")
_LIST_ITEM = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s")
_NEW_BLOCK = re.compile(r"^\s*(?:[-*+•#|]|\d{1,3}[.)]\s)")

_SPANS = re.compile(
    r"“[^“”]{1,4000}”|„[^„“”]{1,4000}[“”]|«[^«»]{1,4000}»|「[^「」]{1,4000}」|『[^『』]{1,4000}』"
    r"|(?<![\w\"])\"(?=\S)[^\"]{1,4000}\"(?!\w)"
)
MIN_SENTENCE_WORDS = 5
"""Quoted text of at least this many words counts as a sentence; shorter text as a name or a value."""

ELLIPSIS = "“…”"


def without_blocks(text: str, *, indented: bool = True) -> str:
    """The text without fenced code and block quotes (including the lines that continue a quote without a `>`), and, if
    `indented`, without indented code blocks."""
    return "\n".join(_own_lines(text.split("\n"), indented))


def without_quotations(text: str) -> str:
    """The author's own words: without block quotes and code, and with each quoted sentence replaced by an ellipsis."""
    paragraphs = re.split(r"(\n[ \t]*\n)", without_blocks(text))
    return "".join(_SPANS.sub(_shortened, paragraph) for paragraph in paragraphs)


def _shortened(match: re.Match[str]) -> str:
    quoted = match.group()[1:-1]
    is_sentence = len(quoted.split()) >= MIN_SENTENCE_WORDS or re.search(r"[.!?]\s|[。！？]", quoted)
    return ELLIPSIS if is_sentence else match.group()


def _own_lines(lines: list[str], indented: bool) -> Iterator[str]:
    """The lines, with an empty one for each removed line, so that the sentence before it ends there."""
    fence = ""
    quoting = coding = False
    before = ""
    for line in lines:
        found = _FENCE.match(line)
        if fence:
            if found and found["mark"].startswith(fence) and not found["info"].strip():
                fence = ""
            yield ""
            continue
        if found and "`" not in found["info"]:
            fence, quoting = found["mark"], False
            yield ""
            continue
        quoting = bool(_QUOTE.match(line)) or (quoting and bool(line.strip()) and not _NEW_BLOCK.match(line))
        blank_before = not before.strip()
        coding = indented and bool(_INDENTED.match(line)) and not _LIST_ITEM.match(line) and (blank_before or coding)
        before = line
        yield "" if quoting or coding else line
