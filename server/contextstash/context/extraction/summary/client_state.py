"""What a client's summary says of the moment when it was written, which is wrong once the work went on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from contextstash.context.extraction.summary.headed_text import GAP, Line, heading_level, is_fence, lines_of

_OF_ITS_TIME = re.compile(
    r"\W*(?:\d{1,2}\. )?\W*(?:(?:optional |immediate |recommended )?next (?:steps?|actions?)|pending|in progress"
    r"|current (?:work|state|status|task)|remaining|to-?dos?|open (?:items|tasks)|what['’]s next)\b",
    re.IGNORECASE,
)
"""The headings of those sections of a client's summary that say how things stood when it was written."""

_LEFT_OUT = "[left out: what was pending and next when this was written]"

_ANY_LEVEL = 9
"""Deeper than every heading."""


def without_state(summary: str) -> str:
    """A client's summary, after which the work went on, without its sections on what is pending and next, and without
    what it says elsewhere of that moment."""
    kept: list[Line] = []
    gone, titled = 0, False
    for line in lines_of(_without_remainder(summary)):
        if line.level and (not gone or line.level <= gone):
            was, gone = gone, 0
            if _OF_ITS_TIME.match(line.text) or _STALE.match(line.text):
                # The first heading may be the title of everything below it.
                gone = line.level if titled else _ANY_LEVEL
                kept += [] if was else [Line(_LEFT_OUT)]
        titled = titled or bool(line.level)
        if not gone:
            kept.append(line)
    return "\n".join(_lasting(kept))


def _without_remainder(summary: str) -> str:
    """The summary without what follows a place where its middle was cut out, up to the next heading: it may be the end
    of a section whose heading was cut out."""
    lines = summary.split("\n")
    if not any(map(heading_level, lines)):
        return summary
    kept: list[str] = []
    cut, opened = False, -1
    for line in lines:
        cut = cut and not heading_level(line)
        if cut:
            continue
        start, mark, _ = line.partition(f" {GAP} ")
        cut = bool(mark)
        if is_fence(line):
            opened = -1 if opened >= 0 else len(kept)
        kept.append(f"{start} {GAP}\n" if cut else line)
        if cut and opened >= 0:  # a block of code whose end was cut out
            kept[opened:] = [f"{GAP}\n"]
            opened = -1
    return "\n".join(kept)


_LEAD = r"[^\w\"“”‘«`']{0,20}(?:\d{1,2}[.)] {1,4})?[^\w\"“”‘«`']{0,20}"
_WE = r"(?:(?:I|we)(?:['’](?:m|re)| am| are| was| were)? )?"
_STALE = re.compile(
    rf"{_LEAD}(?:"
    r"(?:the )?current (?:error|issue|problem|failure|blocker|bug)s?(?=\W{0,9}$|\W{0,4}:|\W{0,4} (?:is|are|was|were)\b)"
    r"|(?:(?:the )?user['’]s |the )?(?:most recent|latest|last) (?:user )?(?:request|question|instruction)s?"
    r"(?=\W{0,9}$|\W{0,4}:|\W{0,4} (?:is|are|was|were)\b)"
    rf"|{_WE}currently\b"
    r"|(?:I|we) (?:am|are|was|were) in the middle of\b"
    r"|(?:(?:I|we) )?(?:(?:still|now|also) )?needs? to (?:investigate|continue|resume|finish|find out|figure out|debug"
    r"|look into|determine|check (?:why|if|whether))\b"
    r")",
    re.IGNORECASE,
)
"""How a sentence begins that says what was the case, or was to be done, at that moment."""

_DOING = re.compile(r"\b(?:is|are|was|were) currently \w+ing\b", re.IGNORECASE)

_OF_USER = re.compile(
    r"\buser(?:['’]s)? (?:messages|requests|words|instructions|feedback|preferences)\b|\bconstraints\b", re.IGNORECASE
)
"""The headings of sections that quote the user, whose words stay."""

_SENTENCE = re.compile(r"(?<=[.!?]) +(?=\S)")
_BULLET = re.compile(r"\s*(?:[-*+•] |\d{1,2}[.)] )")


def _lasting(lines: Iterable[Line]) -> Iterator[str]:
    """The lines without statements on the moment when they were written, and without what stands below these."""
    below, quotes = -1, False
    for line in lines:
        if line.level:
            quotes = bool(_OF_USER.search(line.text))
        bullet = bool(_BULLET.match(line.text))
        if not line.fenced and (not line.text.strip() or line.level or 2 * line.indent + bullet <= below):
            below = -1
        if below >= 0:
            continue
        text = line.text if line.level or line.fenced or quotes else _without_stale(line.text)
        if text or not line.text.strip():
            yield text
        if text != line.text:
            below = 2 * line.indent + (bullet or not line.text.rstrip(" *").endswith(":"))


def _without_stale(line: str) -> str:
    """The line up to its first sentence on the moment when it was written: what follows explains that one."""
    start = 0
    for end in (*(match.start() for match in _SENTENCE.finditer(line)), len(line)):
        sentence = line[start:end]
        if _STALE.match(sentence) or _DOING.search(sentence):
            return line[:start].rstrip()
        start = end
    return line
