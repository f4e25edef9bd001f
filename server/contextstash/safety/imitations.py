"""Neutralizes text that imitates a speaker, a heading of a summary or a marker of contextstash.

A file or a model's reply may contain lines such as `User: always …` or `## Decisions and constraints`. In a summary
or a digest the next model would take them for the user's words, or for a section that contextstash wrote.
"""

from __future__ import annotations

import re

from contextstash.safety.sanitize import SPEAKERS, UNSEEN, unforged, without_host_tags

_GAP = r"[^\S\n]"
_LEAD = rf"(?P<lead>{_GAP}*+(?:(?:[>|*_+#-]|[^\w\s\x00-\x7f“]|\d{{1,3}}[.)]|\[.?\]){_GAP}*+){{0,20}})"
"""Bullets, quotation marks, check boxes, pictures and emphasis before the first word of a line."""

_WHO = "|".join(SPEAKERS)
_WHOSE = (
    "(?:(?:an?|the|this|your|from|important|urgent|new|latest|current|actual|real|original|end|note|message|quote) )"
    "{0,4}"
)
_WHAT = (
    "(?:'s)?(?: (?:message|prompt|instructions?|notes?|notices?|requests?|reminders?|commands?|warnings?|updates?"
    "|overrides?|input|says?|said|writes?|wrote|asks?|asked|wants|answered|reply|turn)){0,2}"
)
_SPEAKER = re.compile(
    rf"^(?:{_LEAD}(?P<label>[\[(<{{]?{_WHOSE}(?:{_WHO}){_WHAT}[\])>}}]?[*_]{{0,3}}{_GAP}{{0,4}}"
    rf"(?::|[=-]{{0,2}}>|→|(?<={_GAP})-{{1,3}}(?={_GAP}))"
    rf"|[\[({{]{_GAP}{{0,4}}{_WHOSE}(?:{_WHO}){_WHAT}{_GAP}{{0,4}}[\])}}]))",
    re.IGNORECASE | re.MULTILINE,
)

_TITLES = (
    r"tasks?|earlier summar(?:y|ies)|decisions?|constraints?|said (?:at the end|between calls)|failed when"
    r"|files (?:touched|changed)|names in use|what was done|errors?|findings?|open items?|last state"
    r"|archived outputs?|missing above|outputs kept|files in use|instructions?|rules?|requirements?|messages? \d"
)
_OF_WHOM = r"(?:(?:the|your|our|my|these|standing|important|new|further|hard|project|permanent|[a-z]+'s) ){0,3}"
_HEADING = re.compile(
    rf"^(?P<lead>{_GAP}*(?:[>|*+-]{_GAP}+){{0,4}})(?P<label>"
    rf"(?:#{{1,6}}{_GAP}*|\*\*|__|[*_](?=[^\n]*[*_]{_GAP}*$)){_OF_WHOM}(?:{_TITLES}|{_WHO})(?!\w)[^\n]*"
    rf"|{_OF_WHOM}(?:{_TITLES})(?!\w)[^\n]{{0,40}}(?=\n{_GAP}*[=-]{{3,}}{_GAP}*$))$",
    re.IGNORECASE | re.MULTILINE,
)

_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_UNSEEN = re.compile(f"[{UNSEEN}]")


def defused(text: str) -> str:
    """The text with the same lines, in which no line reads as a speaker's, as a heading of a summary or as a marker:
    such a label is put in quotation marks. Idempotent."""
    text = _UNSEEN.sub("", _LINE_ENDS.sub("\n", text))
    text = without_host_tags(unforged(text))
    return _SPEAKER.sub(_quoted, _HEADING.sub(_quoted, text))


def is_speaker_line(line: str) -> bool:
    """Whether a line begins with a speaker's label, such as `User:`."""
    return _SPEAKER.match(line) is not None


def _quoted(match: re.Match[str]) -> str:
    return f"{match['lead']}“{match['label'].strip()}”"
