"""Makes any text safe to show to a model: no control characters, no forged markers, one line if needed."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
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

_OPENING = "[⁅⎡⎢⎣❲⟦⟬⦋⦍⦏⦗⧘⧚⸢⸤⹕⹗〈《【〔〖〘〚﹇﹝［︗︹︻⟨⟪⧼❬❰⦑⸂⸄︽︿\u2329"
_CLOSING = "]⁆⎤⎥⎦❳⟧⟭⦌⦎⦐⦘⧙⧛⸣⸥⹖⹘〉》】〕〗〙〛﹈﹞］︘︺︼⟩⟫⧽❭❱⦒⸃⸅︾﹀\u232a"
"""Square brackets and the characters that look like one: full-width, lenticular, white, with ticks or quills."""

_ROUND = str.maketrans(dict.fromkeys(_OPENING, "(") | dict.fromkeys(_CLOSING, ")"))

_LOOK_ALIKES = {
    "a": "аαᴀΑ", "b": "ʙвΒ", "c": "сϲᴄ", "d": "ԁⅾᴅđ", "e": "еεᴇΕ", "g": "ɡɢ", "h": "һʜħнΗ", "i": "іιıɪΙ",
    "k": "кᴋΚ", "l": "ӏʟł", "m": "мᴍΜ", "n": "пɴΝ", "o": "оοᴏø", "p": "рρᴘ", "r": "гʀ", "s": "ѕꜱ", "t": "тτᴛŧ",
    "u": "υᴜս", "v": "ѵνᴠ", "w": "ԝᴡ", "x": "хχ", "y": "уγʏΥ", "[": _OPENING[1:], "]": _CLOSING[1:],
    ":": "\ufe13\ua789\u2236\u02d0\ua4fd\u0589\u05c3", "'": "’ʼ", ">": "→⇒➡➜", "•": "·ℹ", "\n": "\x85\u2028\u2029",
}  # fmt: skip
"""Letters of other alphabets, small capitals and signs that look like those of ASCII; Unicode's own equivalents of
characters (full-width, mathematical, with an accent) are found by its tables."""


class _Skeleton(dict[int, str]):
    """What a character looks like, one for one: a letter or sign of ASCII, `\x00` if nothing, `•` if a picture."""

    def __init__(self) -> None:
        super().__init__({ord(each): plain for plain, alike in _LOOK_ALIKES.items() for each in alike})

    def __missing__(self, code: int) -> str:
        plain = self[code] = _looks_like(chr(code))
        return plain


_skeletons = _Skeleton()


def _looks_like(character: str) -> str:
    category = unicodedata.category(character)
    if category in ("Cf", "Cs", "Mn", "Me") or re.match(f"[{UNSEEN}]", character):
        return "\x00"
    if category in ("Zs", "Pd"):
        return " " if category == "Zs" else "-"
    if (lower := character.lower()) != character and len(lower) == 1:
        return _skeletons[ord(lower)]
    plain = unicodedata.normalize("NFKD", character)
    first = plain[0]
    if first.isascii() and first.isprintable() and all(unicodedata.category(each) == "Mn" for each in plain[1:]):
        return first
    if letter := re.search(r"(?:SQUARED|CIRCLED) LATIN CAPITAL LETTER ([A-Z])$", unicodedata.name(character, "")):
        return letter[1]
    return "•" if category in ("So", "Sk", "Sm") else _skeletons.get(ord(first), character)


def skeleton(text: str) -> str:
    """The text with each character as it looks, of the same length: patterns of ASCII find in it what a reader would
    take for them."""
    return text if text.isascii() else text.translate(_skeletons)


GAP = "\x00-\x09\x0b-\x1f\x7f "
"""What may stand between the words of a line, in a skeleton; as a part of a regular expression's class."""


def spelled(words: str, *, across_lines: bool = True) -> str:
    """A regular expression that finds these lower-case words in a skeleton, also with invisible characters or spaces
    between the letters."""
    return f"[{GAP}_{chr(10) if across_lines else ''}-]{{0,8}}".join(words.replace(" ", ""))


def replaced(text: str, pattern: re.Pattern[str], make: Callable[[re.Match[str], str], str]) -> str:
    """The text with `make(match, matched)` in the place of what the pattern finds in its skeleton."""
    pieces, place = [], 0
    for match in pattern.finditer(skeleton(text)):
        pieces += [text[place : match.start()], make(match, text[match.start() : match.end()])]
        place = match.end()
    return "".join([*pieces, text[place:]]) if pieces else text


_BRACKETS = re.compile(f"[<\uff1c\ufe64{re.escape(_OPENING)}]")
_MAY_BE_FORGED = re.compile(rf"[{re.escape(_OPENING)}](?:[^\x21-\x7e]|[_-]|[cp])", re.IGNORECASE)
"""The beginning of every forged marker: a bracket, then one of the first letters, something invisible or a letter that
is not ASCII. Most texts have none."""


@cache
def _forged() -> re.Pattern[str]:
    """The bracket before a marker or placeholder of contextstash, or before text that looks like one. Compiled at first
    use: that takes longer than a client's hook may need for a small output."""
    markers = "|".join(map(spelled, ("contextstash", "compaction tool digest", "previously viewed")))
    return re.compile(rf"\[(?=[{GAP}\n]{{0,80}}(?:{markers}))", re.IGNORECASE | re.ASCII)


SPEAKERS = ("user", "human", "system", "assistant", "developer", "operator", "admin", "administrator")

_HOST_TAGS = (
    "system reminder", "user instructions", "environment context", "user prompt submit hook", "command name",
    "command message", "local command stdout", "task notification", "function calls", "function results", "invoke",
    "start of turn", "end of turn", "turn", "sys", "tool", *SPEAKERS,
)  # fmt: skip
"""Tags by which Claude Code, Codex and chat templates say who speaks, with spaces for their `_` and `-`."""


@cache
def _host_tags() -> re.Pattern[str]:
    """The bracket before a client's own tag, such as a reminder of the system. Compiled at first use too."""

    def one_of(*words: str) -> str:
        return "|".join(spelled(word, across_lines=False) for word in words)

    tag = (
        rf"(?:{one_of(*_HOST_TAGS)})(?:[{GAP}]{{0,8}}(?:/?>|$)|[{GAP}]{{1,8}}[a-z]+=)|{one_of('system reminder')}(?!\w)"
    )
    between_bars = rf"\|[{GAP}a-z0-9_\u2581-]{{2,40}}\|"
    instructions = rf"\[(?=[{GAP}/]{{0,8}}{one_of('inst')}[{GAP}]{{0,8}}\])"
    return re.compile(rf"<(?=[{GAP}/<]{{0,8}}(?:{tag}|{between_bars}))|{instructions}", re.IGNORECASE | re.MULTILINE)


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
    if not _is_plain(text):
        text = _UNPRINTABLE.sub(" ", text)
    if "  " in text or not _is_plain(text):
        text = _SPACES.sub(" ", text)
    return clip(without_host_tags(unforged(text.strip())), max_chars)


def _is_plain(text: str) -> bool:
    """Whether all characters are printable ASCII. Most texts are, and need no regular expression: to look at each
    character with one takes twenty times as long."""
    return text.isascii() and text.isprintable()


def unbracketed(text: str) -> str:
    """The text, of the same length, with a round bracket for each square one or look-alike, so that text inside a
    placeholder can neither end it nor begin another."""
    if text.isascii() and "[" not in text and "]" not in text:
        return text
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
    return replaced(text, _host_tags(), _other_bracket) if _BRACKETS.search(text) else text


def _other_bracket(match: re.Match[str], bracket: str) -> str:
    if match[0] == "[":
        return "("
    text, place = match.string, match.start()
    is_type = place > 0 and text[place - 1].isalnum() and text[place + 1].isupper()  # List<User>
    return bracket if is_type else "‹"


def unforged(text: str) -> str:
    """The text with the same lines, without anything that looks like a marker of contextstash."""
    if text.isascii() and "[" not in text:
        return text
    return replaced(text, _forged(), lambda _, bracket: "(") if _MAY_BE_FORGED.search(text) else text
