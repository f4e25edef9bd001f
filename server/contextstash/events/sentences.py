"""What a person or a model wrote: its sentences in any language, what is pasted or quoted in it, and a shorter
text: what is pasted leaves first, instructions stay whole."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import pairwise

from contextstash.safety.sanitize import clip, defused, is_speaker_line

MAX_SCANNED = 40_000
"""How many characters of one text are split, about 10,000 tokens. Longer texts are pasted, not written; their
rest is not read."""

_BULLET = re.compile(r"^\s*(?:(?:[-*+•>#]|\d{1,3}[.)]|\[[ xX]\]|✅|❌|✓|✗|☐|☑)+\s+)+")
LIST_MARK = re.compile(r"(?:[-*+•]|(\d{1,3}[.)])) +(?=\S)")

_END = re.compile(r"(?<=[.!?])[\"'”’)*_]{0,3}\s+(?=[^\sa-z])|(?<=[。！？])")


def sentences(text: str) -> list[str]:
    """The sentences in order. The end of a line ends a sentence. Bullets and heading marks are removed; fenced
    code, block quotes and table rows are left out."""
    return _split(without_blocks(text[:MAX_SCANNED], indented=False))


def own_sentences(text: str, *, rows: bool = False, code: bool = False) -> list[str]:
    """The sentences that are the author's own: without quotations and without lines that begin with a speaker's
    label. With `rows`, each row of a table is one, and the first sentence of an item of a list has its mark; with it or
    with `code`, blocks of code are marked."""
    own = _split(without_quotations(text[:MAX_SCANNED], CODE if rows or code else ""), rows=rows)
    return [sentence for sentence in own if not is_speaker_line(sentence)]


def _split(text: str, *, rows: bool = False) -> list[str]:
    found: list[str] = []
    for line in text.split("\n"):
        if line.lstrip().startswith("|"):
            found += [line.strip()] if rows and line.strip("|:- \t") else []
            continue
        bare = _BULLET.sub("", line.strip()).strip()
        parts = [part.strip() for part in _END.split(bare) if part.strip()]
        item = LIST_MARK.match(line.strip()) if rows and parts else None
        found += [f"{item[1] or '-'} {parts[0]}", *parts[1:]] if item else parts
    return found


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

ELLIPSIS, CODE = "“…”", "[code]"


def without_blocks(text: str, *, indented: bool = True, code: str = "") -> str:
    """The text without fenced code, in whose place `code` stands, and block quotes (including the lines that
    continue a quote without a `>`), in whose place an ellipsis stands if `code` does, and, if `indented`, without
    indented code blocks; an empty line stands for each removed one, so that the sentence before it ends there."""
    kept: list[str] = []
    fence = ""
    quoting = coding = False
    before = ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if fence:
            if found and found["mark"].startswith(fence) and not found["info"].strip():
                fence = ""
            kept.append("")
            continue
        if found and "`" not in found["info"]:
            fence, quoting = found["mark"], False
            kept.append(code)
            continue
        goes_on = quoting and bool(line.strip()) and not _NEW_BLOCK.match(line)
        begins = code and not quoting
        quoting = bool(_QUOTE.match(line)) or goes_on
        blank_before = not before.strip()
        coding = indented and bool(_INDENTED.match(line)) and not _LIST_ITEM.match(line) and (blank_before or coding)
        before = line
        kept.append((ELLIPSIS if quoting and begins else "") if quoting or coding else line)
    return "\n".join(kept)


def without_quotations(text: str, code: str = "") -> str:
    """The author's own words: without block quotes, with `code` in the place of fenced code, and with each quoted
    sentence replaced by an ellipsis."""
    paragraphs = re.split(r"(\n[ \t]*\n)", without_blocks(text, code=code))
    return "".join(_SPANS.sub(_shortened, paragraph) for paragraph in paragraphs)


def _shortened(match: re.Match[str]) -> str:
    quoted = match.group()[1:-1]
    is_sentence = len(quoted.split()) >= MIN_SENTENCE_WORDS or re.search(r"[.!?]\s|[。！？]", quoted)
    return ELLIPSIS if is_sentence else match.group()


MAX_CONCLUSION, MIN_NOTE = 3_000, 40
"""Characters of what the agent said in one message: a review with six findings has as many. Shorter sentences alone,
such as "Good, all pass", say nothing that is needed later."""

ANNOUNCES = re.compile(
    r"\W*(?:(?:now|next|then|first|good|great|ok(?:ay)?|perfect)\b[,.:;!— ]*)*"
    r"(?:let(?: me|['’]s)|i(?:['’]ll| will| need to| should|(?:['’]m| am) \w+ing)|now)\b",
    re.IGNORECASE,
)
"""How a sentence begins that says what comes next: the calls behind it say that."""

_ENDS = ".!?:。！？"
"""What a sentence ends with; a heading and an item of a list mostly end with nothing."""

GAP = "[…]"
"""In the place of what is left out."""


def conclusion(text: str) -> str:
    """What the agent said at the end of a turn, in its own sentences, without quotations."""
    return _as_text(own_sentences(text, rows=True))


def note_of(text: str) -> str:
    """What the agent said between its calls, without what only says what comes next; empty if all of it is short."""
    told = [GAP if ANNOUNCES.match(each) else each for each in own_sentences(text, rows=True)]
    told = [each for before, each in pairwise([GAP, *told]) if (before, each) != (GAP, GAP)]
    return _as_text(told).removesuffix(GAP).strip() if any(len(each) >= MIN_NOTE for each in told) else ""


def _as_text(told: Iterable[str]) -> str:
    """Sentences as one text; what has no sign at its end, such as an item of a list, and the row of a table have lines
    of their own."""
    text = ""
    for each in told:
        text = f"{text.rstrip()}\n" if each[0] == "|" or LIST_MARK.match(each) else text
        text += f"{each} " if each[-1] in _ENDS or each == GAP else f"{each}\n"
    return clip(defused(text.strip()), MAX_CONCLUSION)


Count = Callable[[str], int]

MIN_PASTED_LINES, MAX_GIVEN_LINES = 4, 12
"""So many lines in a row that do not read as prose are a pasted text: a list of paths may be shorter. With at most so
many, an instruction above it gives it, such as a command; a longer one is a document."""

_HEADING = re.compile(r"^#{1,6} +\S")
_ITEM = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)])\s+(?:\[[ xX]\] +)?(?=\S)")
_INLINE_CODE = re.compile(r"`[^`]+`")
_WORD = re.compile(r"^[(\"'“\[]*[^\W\d_][\w'’-]*[)\"'”\],;:.!?…]*$")

MIN_WORDS, MIN_ITEM_WORDS = 4, 3
"""So many words make a line, or an item of a list, prose if most of its parts are words. Fewer would make code prose,
more would make the steps of a plan pasted text."""

WORD_SHARE = 0.75
"""The share of words among the parts of such a line. In a log, a third are times, numbers and signs."""

_CODE_END = re.compile(r"[{};\\]\s*$|^\s*(?:[+\-|>$#❯]|\d+[:→|]|at \S+\(|File \"|<\w)")


def shortened(text: str, max_tokens: int, count: Count, rules: Collection[str], where: str) -> str:
    """The text in about `max_tokens`, counted with `count`. Pasted lines leave first, then paragraphs without a
    sentence of `rules`, then others; the first and the last paragraph stay longest, and a paragraph is kept or left out
    as a whole. A line says how much is left out, and `where` it is."""
    groups = _groups(text)
    shown, left_out = text, set[int]()
    for place in sorted(range(len(groups)), key=lambda place: _rank(groups, place, rules))[:-1]:
        if count(shown) <= max_tokens:
            break
        left_out.add(place)
        shown = _without(groups, left_out, where)
    return shown if count(shown) <= max_tokens else _cut_paragraph(shown, max_tokens, count, where)


def first_lines(text: str, most: int, where: str) -> str:
    """The first whole lines of a text, at most `most` characters but at least one line, and a line that says how much
    of `where` is left out."""
    lines = text.strip().split("\n")
    kept, size = 1, len(lines[0])
    while kept < len(lines) and size + 1 + len(lines[kept]) <= most:
        size += 1 + len(lines[kept])
        kept += 1
    left = len(lines) - kept
    return "\n".join([*lines[:kept], *([_notice(left, where)] if left else [])])


def without_pasted(text: str) -> str:
    """The text with an empty line for each line that its author pasted: code, a log, a listing."""
    return "\n".join("" if pasted else line for line, pasted in _pasted(text))


def _groups(text: str) -> list[tuple[bool, list[str]]]:
    """The paragraphs and the pasted runs of lines, in order; a short pasted text is one with the instruction above it
    that gives it."""
    groups: list[tuple[bool, list[str]]] = []
    for line, pasted in _pasted(text):
        # A paragraph ends with its blank line; a pasted text may have some inside.
        if not groups or groups[-1][0] != pasted or (not pasted and not groups[-1][1][-1].strip()):
            groups.append((pasted, []))
        groups[-1][1].append(line)
    joined: list[tuple[bool, list[str]]] = []
    for pasted, group in groups:
        above = joined[-1] if joined else (True, [""])
        if pasted and not above[0] and len(group) <= MAX_GIVEN_LINES and _GIVES.search("\n".join(above[1]).rstrip()):
            above[1].extend(group)
        else:
            joined.append((pasted, group))
    return joined


_GIVES = re.compile(
    r"\b(?:must|exact(?:ly)?|verbatim|as is|run|use|execute|submit|send|call|type|output|reply|answer|print"
    r"|follow(?:ing)?|genau|muss|exactement|exactamente)\b[^\n]*[:\uff1a]\W*\Z",
    re.IGNORECASE,
)
_EXACT = re.compile(r"\b(?:exact(?:ly)?|verbatim|literally|wörtlich|exactement|exactamente)\b", re.IGNORECASE)


def _rank(groups: Sequence[tuple[bool, list[str]]], place: int, rules: Collection[str]) -> tuple[int, int, int]:
    """What is pasted leaves first, the longest before others; what is to be used exactly as it stands leaves last,
    after what the text begins with."""
    pasted, lines = groups[place]
    text = "\n".join(lines)
    worth = 4 if place == 0 else 1 + 2 * any(rule in text for rule in rules) + (place == len(groups) - 1)
    return 0 if pasted else 5 if _EXACT.search(text) else worth, -len(text), place


def _pasted(text: str) -> list[tuple[str, bool]]:
    """The lines, each with whether it belongs to a pasted text: to a fenced or quoted block, or to a run of lines that
    are no prose. The headings, items and inline code of a plan in Markdown are its author's words."""
    lines, own = text.split("\n"), without_blocks(text, indented=False).split("\n")
    found = [bool(line.strip()) and not mine.strip() for line, mine in zip(lines, own, strict=True)]
    strange: list[bool] = []
    for line, above, is_pasted in zip(lines, ["", *lines], found, strict=False):
        # A comment or a prompt in a terminal begins like a heading, but seldom stands below an empty line.
        is_own = _is_prose(line) or (_HEADING.match(line) is not None and not above.strip())
        strange.append(is_pasted or (bool(line.strip()) and not is_own))
    start = 0
    for place in range(len(lines) + 1):
        if place < len(lines) and (strange[place] or not lines[place].strip()):
            continue
        if sum(strange[start:place]) >= MIN_PASTED_LINES:
            found[start:place] = [True] * (place - start)
        start = place + 1
    return list(zip(lines, found, strict=True))


def _is_prose(line: str) -> bool:
    item = _ITEM.match(line)
    plain = _INLINE_CODE.sub("name", line[item.end() :] if item else line).replace("**", "")
    if _CODE_END.search(plain):
        return False
    pieces = plain.split()
    words = sum(bool(_WORD.match(piece)) for piece in pieces)
    return words >= (MIN_ITEM_WORDS if item else MIN_WORDS) and words >= WORD_SHARE * len(pieces)


def _without(groups: Sequence[tuple[bool, list[str]]], left_out: Collection[int], where: str) -> str:
    shown: list[str] = []
    missing = 0
    for place, (_, lines) in enumerate((*groups, (False, []))):
        if place in left_out:
            missing += len(lines)
            continue
        shown += [_notice(missing, where), *lines] if missing else lines
        missing = 0
    return "\n".join(shown)


def _notice(lines: int, where: str) -> str:
    return f"[left out: {lines} line{'s' * (lines != 1)} of {where}]"


def _cut_paragraph(text: str, max_tokens: int, count: Count, where: str) -> str:
    """The text up to the last whole line or sentence that fits, with a notice; at least its first piece."""
    pieces = re.split(r"(?<=\n)|(?<=[.!?。！？])(?=\s)", text)
    notice = f"[left out: the rest of {where}]"

    def size(number: int) -> int:
        return count(f"{''.join(pieces[:number]).rstrip()}\n{notice}")

    kept = bisect_right(range(1, len(pieces) + 1), max_tokens, key=size)
    first = "".join(pieces[: max(1, kept)]).rstrip()
    if not kept:
        first = first[: max(1, 2 * max_tokens)].rsplit(" ", 1)[0]
    return f"{first}\n{notice}"
