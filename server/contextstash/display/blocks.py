"""A recorded block prepared for a reader: a call's arguments as fields, a diff by lines, long texts folded. Pure."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from contextstash.display.template_filters import MAX_MARKDOWN
from contextstash.display.visible_text import cut
from contextstash.messages.main_argument import parsed

Kind = Literal["prose", "markdown", "code", "command", "diff", "edit"]
"""`edit` is a diff of a call's two texts, without headers; `markdown` is prose that a model wrote."""

HEAD_LINES = 12
"""Lines of a long text that are shown before the rest is folded."""

FOLDED_LINES = 4
"""A text with so many lines more is not folded: the line that opens the fold would save nothing."""

MAX_FIELD = 100
"""Characters of an argument that is on the line of its name; a longer one gets a block of its own."""

MAX_DIFFED_LINES = 2_000
"""Lines of an edit that are compared; difflib takes seconds for more. Longer ones are shown one after the other."""

COMMANDS = frozenset({"command", "cmd", "script", "code"})
"""Arguments that are programs, as clients name them."""

EDITS = (
    ("old_string", "new_string"),
    ("old_str", "new_str"),
    ("oldString", "newString"),
    ("oldText", "newText"),
    ("old_text", "new_text"),
    ("search", "replace"),
)
"""Arguments that are a text and its replacement, as clients name them."""

_DIFF = re.compile(r"^(?:diff --git |\*\*\* Begin Patch|@@ -\d|--- \S.*\n\+\+\+ )", re.MULTILINE)
_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Line:
    """One or several lines with one look: `add`, `del`, `hunk`, or none."""

    look: str
    text: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a block. `rest` is folded, it has `more_lines`; `more` characters are cut."""

    kind: Kind
    label: str
    head: tuple[Line, ...]
    rest: tuple[Line, ...] = ()
    more_lines: int = 0
    more: int = 0


@dataclass(frozen=True, slots=True)
class Shown:
    """A block: the short arguments of a call, and its pieces."""

    fields: tuple[tuple[str, str], ...]
    pieces: tuple[Piece, ...]


def shown(kind: str, text: str, max_chars: int) -> Shown:
    """A block of this type with this text, at most `max_chars` characters of each piece. `reply` is text by a model."""
    if kind == "tool_call":
        return _call(text, max_chars)
    if kind == "tool_result":
        return Shown((), (_piece("diff" if is_diff(text) else "code", "", text, max_chars),))
    read = kind == "reply" and len(text) <= MAX_MARKDOWN
    return Shown((), tuple(_prose(text, max_chars, "markdown" if read else "prose")))


def is_diff(text: str) -> bool:
    """Whether a text begins like a diff or a patch."""
    return _DIFF.match(text[:200].lstrip()) is not None


def _prose(text: str, max_chars: int, words: Literal["prose", "markdown"]) -> Iterator[Piece]:
    """Words, and the code between fences in them."""
    text = text if len(text) <= max_chars else text[: max_chars + 1]
    place = 0
    for fenced in _FENCE.finditer(text):
        if before := text[place : fenced.start()].strip("\n"):
            yield _whole(words, before, max_chars)
        code = fenced[2].rstrip("\n")
        yield _piece("diff" if is_diff(code) else "code", fenced[1].strip(), code, max_chars)
        place = fenced.end()
    if after := text[place:].strip("\n"):
        yield _whole(words, after, max_chars)


def _call(text: str, max_chars: int) -> Shown:
    arguments = parsed(text)
    if not isinstance(arguments, Mapping):
        return Shown((), (_piece("diff" if is_diff(text) else "code", "", text, max_chars),) if text else ())
    fields: list[tuple[str, str]] = []
    pieces: list[Piece] = []
    rest = dict(arguments)
    for old, new in EDITS:
        if isinstance(rest.get(old), str) and isinstance(rest.get(new), str):
            pieces.append(_diff(rest.pop(old), rest.pop(new), max_chars))
    for name, value in rest.items():
        if name == "edits" and isinstance(value, list):
            pieces += _edits(value, max_chars)
        elif name in COMMANDS and value:
            pieces.insert(0, _piece("command", "", _command(value), max_chars))
        elif len(words := _words(value)) <= MAX_FIELD and "\n" not in words:
            fields.append((cut(str(name), MAX_FIELD).text, cut(words).text))
        else:
            pieces.append(_piece("diff" if is_diff(words) else "code", str(name), words, max_chars))
    return Shown(tuple(fields), tuple(pieces))


def _words(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _command(value: object) -> str:
    """A command line. A shell that only runs a program given as its argument is left out."""
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return value[2] if len(value) == 3 and value[1] in ("-c", "-lc") else " ".join(value)
    return _words(value)


def _edits(edits: Sequence[object], max_chars: int) -> list[Piece]:
    found = []
    for edit in edits:
        if isinstance(edit, Mapping):
            pairs = ((edit[old], edit[new]) for old, new in EDITS if old in edit and new in edit)
            found += [_diff(_words(old), _words(new), max_chars) for old, new in pairs]
    return found or [_piece("code", "edits", _words(list(edits)), max_chars)]


def _diff(old: str, new: str, max_chars: int) -> Piece:
    before, after = old.splitlines(), new.splitlines()
    if len(before) + len(after) > MAX_DIFFED_LINES:
        lines = [*(f"-{line}" for line in before), *(f"+{line}" for line in after)]
    else:
        lines = [line for line in difflib.ndiff(before, after) if not line.startswith("?")]
        lines = [line[0] + line[2:] for line in lines]
    return _piece("edit", "", "\n".join(lines), max_chars)


def _whole(kind: Kind, text: str, max_chars: int) -> Piece:
    """A piece that is not folded."""
    shortened = cut(text, max_chars)
    return Piece(kind, "", (Line("", shortened.text),), more=shortened.more)


def _piece(kind: Kind, label: str, text: str, max_chars: int) -> Piece:
    shortened = cut(text, max_chars)
    lines = shortened.text.split("\n")
    if len(lines) <= HEAD_LINES + FOLDED_LINES:
        return Piece(kind, label, _looks(kind, lines), more=shortened.more)
    head, rest = lines[:HEAD_LINES], lines[HEAD_LINES:]
    return Piece(kind, label, _looks(kind, head), _looks(kind, rest), len(rest), shortened.more)


def _looks(kind: Kind, lines: Sequence[str]) -> tuple[Line, ...]:
    if kind not in ("diff", "edit"):
        return (Line("", "\n".join(lines)),)
    found: list[Line] = []
    for line in lines:
        look = _look(line, has_headers=kind == "diff")
        if found and found[-1].look == look:
            found[-1] = Line(look, f"{found[-1].text}\n{line}")
        else:
            found.append(Line(look, line))
    return tuple(found)


def _look(line: str, *, has_headers: bool) -> str:
    """An edit has no headers: `--- x` in it is a removed line that begins with two hyphens."""
    if has_headers and line.startswith(("@@", "diff ", "index ", "*** ", "+++ ", "--- ")):
        return "hunk"
    return "add" if line.startswith("+") else "del" if line.startswith("-") else ""
