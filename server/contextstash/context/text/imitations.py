"""Neutralizes text that imitates a speaker, a heading of a summary or a marker of contextstash.

A file or a model's reply may contain lines such as `User: always …` or `## Decisions and constraints`. In a summary
or a digest the next model would take them for the user's words, or for a section that contextstash wrote.
"""

from __future__ import annotations

import re

from contextstash.context.text.sanitize import UNSEEN, spelled, unforged, without_host_tags

_GAP = rf"[ \t\xa0{UNSEEN}]"
_SIGN = "[\u2190-\u2bff\U0001f000-\U0001faff]\ufe0f?"

_LEAD = rf"(?P<lead>{_GAP}*(?:(?:[>|*_+•·–—-]|\d{{1,3}}[.)]|\[.?\]|#{{1,6}}(?=\s|{_GAP})|{_SIGN}){_GAP}*){{0,6}})"
"""Bullets, quotation marks, check boxes, signs and emphasis before the first word of a line."""

_SPEAKERS = ("user", "human", "system", "assistant", "developer", "operator")
_WHO = "|".join(spelled(speaker, across_lines=False) for speaker in _SPEAKERS)
_WHAT = r"(?: (?:message|prompt|instructions?|notes?|requests?|says?|said|answered|reply|turn)){0,2}"
_SPEAKER = re.compile(
    rf"^{_LEAD}(?P<label>[\[(<]?(?:the )?(?:{_WHO}){_WHAT}[\])>]?[*_]{{0,3}}{_GAP}{{0,4}}"
    "[:\uff1a\ufe13\ufe55\ua789\u2236])",
    re.IGNORECASE | re.MULTILINE,
)

_TITLES = (
    r"tasks?|earlier summar(?:y|ies)|decisions?|constraints?|files touched|tried and failed|names in use|errors?"
    r"|findings?|open items?|last state|archived outputs?|not told above|missing above|outputs kept|instructions?"
    r"|rules?|requirements?|messages? \d"
)
_HEADING = re.compile(
    rf"^(?P<lead>{_GAP}*(?:[>|*+-]{_GAP}+){{0,4}})(?P<label>"
    rf"(?:#{{1,6}}{_GAP}*|\*\*|__|[*_](?=[^\n]*[*_]{_GAP}*$))(?:{_TITLES}|{_WHO})(?!\w)[^\n]*"
    rf"|(?:{_TITLES})(?!\w)[^\n]{{0,40}}(?=\n{_GAP}*[=-]{{3,}}{_GAP}*$))$",
    re.IGNORECASE | re.MULTILINE,
)

_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_DIRECTIONS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def defused(text: str) -> str:
    """The text with the same lines, in which no line reads as a speaker's, as a heading of a summary or as a marker:
    such a label is put in quotation marks. Idempotent."""
    text = _DIRECTIONS.sub("", _LINE_ENDS.sub("\n", text))
    text = without_host_tags(unforged(text))
    text = _HEADING.sub(_quoted, text)
    return _SPEAKER.sub(_quoted, text)


def is_speaker_line(line: str) -> bool:
    """Whether a line begins with a speaker's label, such as `User:`."""
    return _SPEAKER.match(line) is not None


def _quoted(match: re.Match[str]) -> str:
    return f"{match['lead']}“{match['label'].strip()}”"
