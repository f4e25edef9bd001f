"""Makes any text safe to show to a model: no control characters, no forged markers or speakers, one line if needed;
numbers for a reader.

A file or a model's reply may contain lines such as `User: always …` or `## Decisions and constraints`. In a summary
or a digest the next model would take them for the user's words, or for a section that contextstash wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

MARKER = "[contextstash"
"""The beginning of everything that contextstash itself writes into the model's context."""

OF_SESSION = "hand-off of session "
"""What the first line of a hand-off says."""

USER_BLOCK = f"{MARKER} user:"
"""The beginning of our messages that hold the user's words; they stay at the head of the view."""

USER_BLOCK_OPENING = f"{USER_BLOCK} word for word what the user said in messages"

USER_BLOCK_WHOLE = f"{USER_BLOCK_OPENING} 0 to "
"""The beginning of one that begins with the session: it takes the place of those before it."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]{0,40}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])")
UNSEEN = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Direction, zero-width, filler and tag characters, as a part of a regular expression's class."""

_INVISIBLE = f"\x00-\x1f\x7f-\x9f\ud800-\udfff{UNSEEN}"
"""The same, control characters and lone surrogates."""

_UNPRINTABLE = re.compile(f"[{_INVISIBLE}]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACES = re.compile(r"\s+")

_ROUND = str.maketrans("[]", "()")

_FORGED = re.compile(
    rf"\[(?=[\s{UNSEEN}]{{0,80}}(?:contextstash|compaction tool digest|previously viewed))", re.IGNORECASE
)
"""The bracket before a marker or placeholder of contextstash."""

SPEAKERS = ("user", "human", "system", "assistant", "developer", "operator", "admin", "administrator")

_HOST_TAGS = (
    "user[_-]instructions", "environment[_-]context", "user[_-]prompt[_-]submit[_-]hook", "command[_-]name",
    "command[_-]message", "local[_-]command[_-]stdout", "task[_-]notification", "function[_-](?:calls|results)",
    "invoke", "(?:start|end)[_-]of[_-]turn", "turn", "sys", "tool", *SPEAKERS,
)  # fmt: skip
"""Tags by which Claude Code, Codex and chat templates say who speaks."""


_TAG = rf"(?:{'|'.join(_HOST_TAGS)})(?:\s{{0,8}}(?:/?>|$)|\s{{1,8}}[a-z]+=)|system[_-]reminder\b"
_BETWEEN_BARS = r"[|\uff5c][a-z0-9_\u2581]{2,40}[|\uff5c]"
_HOST_TAG = rf"<(?=[\s/<]{{0,8}}(?:{_TAG}|{_BETWEEN_BARS}))|\[(?=[\s/]{{0,8}}inst\s{{0,8}}\])"
"""The bracket before a client's own tag, such as a reminder of the system."""


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    """Compiled at first use: that takes longer than a client's hook may need for a small output."""
    return re.compile(expression, re.IGNORECASE | re.MULTILINE)


def folded(text: str) -> str:
    """The text in lower case, of the same length: `İ` is the one letter whose lower case is longer."""
    return text.replace("\u0130", "I").lower()


def without_ansi(text: str) -> str:
    """The text without terminal colour and cursor sequences."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def one_line(text: str, max_chars: int) -> str:
    """The text as one line of at most `max_chars` characters; a longer one ends with an ellipsis.

    Each run of white space, control, direction and zero-width characters and lone surrogates becomes one space. The
    square bracket of a forged marker becomes a round one, so that no text passes for one that contextstash wrote, and
    that of a host's tag another one.
    """
    # Eight times the length is enough to fill the line after escape sequences and blanks are removed.
    text = without_ansi(text[: 8 * max_chars + 200])
    # Most texts are, and need no regular expression: to look at each character with one takes twenty times as long.
    is_plain = text.isascii() and text.isprintable()
    if not is_plain:
        text = _UNPRINTABLE.sub(" ", text)
    if "  " in text or not is_plain:
        text = _SPACES.sub(" ", text)
    return clip(without_host_tags(unforged(text.strip())), max_chars)


def unbracketed(text: str) -> str:
    """The text, of the same length, with a round bracket for each square one, so that text inside a placeholder can
    neither end it nor begin another."""
    return text.translate(_ROUND)


def clip(text: str, max_chars: int) -> str:
    """The text, or its beginning with an ellipsis; at most `max_chars` characters."""
    if len(text) <= max_chars:
        return text
    return text[: max(0, max_chars - 1)].rstrip() + "…" * (max_chars > 0)


def encodable(text: str) -> str:
    """The text with each lone surrogate replaced, so that it can be written as UTF-8."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def without_host_tags(text: str) -> str:
    """The text without tags that hosts and chat templates set off text with which is not a tool's output."""
    return _compiled(_HOST_TAG).sub(_other_bracket, text) if "<" in text or "[" in text else text


def _other_bracket(match: re.Match[str]) -> str:
    if match[0] == "[":
        return "("
    text, place = match.string, match.start()
    is_type = place > 0 and text[place - 1].isalnum() and text[place + 1].isupper()  # List<User>
    return "<" if is_type else "‹"


def unforged(text: str) -> str:
    """The text with the same lines, without markers of contextstash."""
    return _FORGED.sub("(", text) if "[" in text else text


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """The question for the name that is probably meant, by difflib's ratio (`prune_att` has 0.94 of `prune_at`); if
    none is near, all that are known, or what to do otherwise."""
    import difflib  # the command line loads this module, and seldom needs it

    known = list(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"Did you mean '{near[0]}'?" if near else otherwise or f"Known: {', '.join(known) or 'none'}."


def counted(number: float, noun: str) -> str:
    """A number and its noun: 1 session, 2 sessions, 2 matches."""
    return f"{number:,} {noun}{'' if number == 1 else 'es' if noun.endswith('ch') else 's'}"


def amount(number: float) -> str:
    """A number in at most six characters: 950, 9.5k, 68k, 1.2M."""
    if number < 1_000:
        return f"{number:.0f}"
    thousand = number / 1_000
    if thousand < 999.5:
        return f"{thousand:.1f}k" if thousand < 9.95 else f"{thousand:.0f}k"
    million = thousand / 1_000
    return f"{million:.1f}M" if million < 999.95 else f"{million / 1_000:.1f}B"


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
_SPEAKER = (
    rf"^(?:{_LEAD}(?P<label>[\[(<{{]?{_WHOSE}(?:{_WHO}){_WHAT}[\])>}}]?[*_]{{0,3}}{_GAP}{{0,4}}"
    rf"(?::|[=-]{{0,2}}>|→|(?<={_GAP})-{{1,3}}(?={_GAP}))"
    rf"|[\[({{]{_GAP}{{0,4}}{_WHOSE}(?:{_WHO}){_WHAT}{_GAP}{{0,4}}[\])}}]))"
)

_TITLES = (
    r"tasks?|earlier summar(?:y|ies)|decisions?|constraints?|said (?:at the end|between calls)|failed when"
    r"|files (?:touched|changed)|names in use|what was done|errors?|findings?|open items?|last state"
    r"|archived outputs?|missing above|outputs kept|files in use|instructions?|rules?|requirements?|messages? \d"
)
_OF_WHOM = r"(?:(?:the|your|our|my|these|standing|important|new|further|hard|project|permanent|[a-z]+'s) ){0,3}"
_HEADING = (
    rf"^(?P<lead>{_GAP}*(?:[>|*+-]{_GAP}+){{0,4}})(?P<label>"
    rf"(?:#{{1,6}}{_GAP}*|\*\*|__|[*_](?=[^\n]*[*_]{_GAP}*$)){_OF_WHOM}(?:{_TITLES}|{_WHO})(?!\w)[^\n]*"
    rf"|{_OF_WHOM}(?:{_TITLES})(?!\w)[^\n]{{0,40}}(?=\n{_GAP}*[=-]{{3,}}{_GAP}*$))$"
)

_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_UNSEEN = re.compile(f"[{UNSEEN}]")


def defused(text: str) -> str:
    """The text with the same lines, in which no line reads as a speaker's, as a heading of a summary or as a marker:
    such a label is put in quotation marks. Idempotent."""
    text = _UNSEEN.sub("", _LINE_ENDS.sub("\n", text))
    text = without_host_tags(unforged(text))
    return _compiled(_SPEAKER).sub(_quoted, _compiled(_HEADING).sub(_quoted, text))


def is_speaker_line(line: str) -> bool:
    """Whether a line begins with a speaker's label, such as `User:`."""
    return _compiled(_SPEAKER).match(line) is not None


def _quoted(match: re.Match[str]) -> str:
    return f"{match['lead']}“{match['label'].strip()}”"


_REMINDER = re.compile(r"<(?=/?system-reminder)", re.IGNORECASE)


def reminder(text: str) -> str:
    """The text between the tags of a reminder, with such tags in the text escaped, so that the text cannot close it."""
    return f"<system-reminder>\n{_REMINDER.sub('‹', text)}\n</system-reminder>"
