"""What a client's summary says of the moment when it was written, which is wrong once the work went on."""

from __future__ import annotations

import re

from contextstash.context.extraction.summary.headed_text import GAP, heading_level, is_fence, lines_of

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
    """A client's summary, after which the work went on, without its sections on what is pending and next."""
    kept: list[str] = []
    gone, titled = 0, False
    for line in lines_of(_without_remainder(summary)):
        if line.level and (not gone or line.level <= gone):
            was, gone = gone, 0
            if _OF_ITS_TIME.match(line.text):
                # The first heading may be the title of everything below it.
                gone = line.level if titled else _ANY_LEVEL
                kept += [] if was else [_LEFT_OUT]
        titled = titled or bool(line.level)
        if not gone:
            kept.append(line.text)
    return "\n".join(kept)


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
