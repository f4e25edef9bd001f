"""What in a text is somebody else's words: code, quoted blocks, quoted sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator

_FENCE = re.compile(r"^[ \t]*(?:[-*+>][ \t]+|\d{1,3}[.)][ \t]+){0,4}(?P<mark>`{3,}|~{3,})(?P<info>.*)$")
_QUOTE = re.compile(r"^[ \t]*(?:[-*+][ \t]+|\d{1,3}[.)][ \t]+){0,4}>")
_INDENTED = re.compile(r"^(?: {4,}|[ ]{0,3}\t)")
_BULLET = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s")
_NEW_BLOCK = re.compile(r"^\s*(?:[-*+•#|]|\d{1,3}[.)]\s)")

_SPANS = re.compile(
    r"“[^“”]{1,4000}”|„[^„“”]{1,4000}[“”]|«[^«»]{1,4000}»|「[^「」]{1,4000}」|『[^『』]{1,4000}』"
    r"|(?<![\w\"])\"(?=\S)[^\"]{1,4000}\"(?!\w)"
)
SENTENCE_WORDS = 5
"""From so many words on, what stands in quotation marks is a sentence of its own; fewer are a name or a value."""

ELLIPSIS = "“…”"


def without_blocks(text: str, *, indented: bool = True) -> str:
    """The text without fenced code and block quotes (a paragraph that goes on below its `>` too), and, if `indented`,
    without code that is told by its indentation."""
    return "\n".join(_own_lines(text.split("\n"), indented))


def without_quotations(text: str) -> str:
    """The author's own words: without quoted blocks and code, quoted sentences replaced by an ellipsis."""
    paragraphs = re.split(r"(\n[ \t]*\n)", without_blocks(text))
    return "".join(_SPANS.sub(_shortened, paragraph) for paragraph in paragraphs)


def _shortened(match: re.Match[str]) -> str:
    said = match.group()[1:-1]
    is_sentence = len(said.split()) >= SENTENCE_WORDS or re.search(r"[.!?]\s|[。！？]", said)
    return ELLIPSIS if is_sentence else match.group()


def _own_lines(lines: list[str], indented: bool) -> Iterator[str]:
    """A dropped line leaves an empty one, which ends the sentence before it."""
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
        coding = indented and bool(_INDENTED.match(line)) and not _BULLET.match(line) and (blank_before or coding)
        before = line
        yield "" if quoting or coding else line
