"""The lines of a file that a call prints, and which lines of it they are."""

from __future__ import annotations

import re
from dataclasses import dataclass

from contextstash.context.extraction.actions import Action
from contextstash.context.text.sanitize import MARKER
from contextstash.context.tool_outputs.shell_envelope import without_heredocs

MAX_TEXT = 400_000
"""Characters of one text that are followed. About 10,000 lines; a longer text is not followed."""

MAX_READ = 2_000
"""Lines that Claude Code's Read prints at most if no limit is given. As many lines may not be the whole file."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Consecutive lines of a file. `whole` is whether they are all that the file has."""

    first: int
    lines: tuple[str, ...]
    whole: bool


_NUMBERED = re.compile(r"^ {0,8}(\d{1,7})(?:→|\t)(.*)$", re.DOTALL)
_CUT = re.compile(
    rf"{re.escape(MARKER)}|…\s*\d[\d,]* (?:tokens|chars|characters) truncated\s*…|\[[^\]\n]*truncated[^\]\n]*\]",
    re.IGNORECASE,
)
"""What we, or a client, leave where the middle of an output was removed. Codex writes the second form."""


def lines_shown_by(action: Action) -> Shown | None:
    """The lines that a read of one file printed; None if the call does not say which ones they are."""
    if action.output is None or len(action.output.text) > MAX_TEXT:
        return None
    cut = _CUT.search(action.output.text)
    text = action.output.text[: cut.start()] if cut else action.output.text
    numbered = _numbered(text)
    given = _given_range(action)
    if numbered is not None:
        first, lines = numbered
    elif given is None or not text.strip():
        return None
    else:
        first, lines = given[0], tuple(text.split("\n"))
        # The last line of a cut text may be half of one, and a text that ends with a line break has no line after it.
        lines = lines[:-1] if cut or text.endswith("\n") else lines
    whole = not cut and first == 1 and given is not None and given[0] == 1 and len(lines) < min(given[1], MAX_READ)
    return Shown(first, lines, whole)


def _numbered(text: str) -> tuple[int, tuple[str, ...]] | None:
    """The first number and the lines of a text whose lines are numbered, up to a gap; None if they are not."""
    first, lines = 0, list[str]()
    for line in text.lstrip("\n").split("\n"):
        match = _NUMBERED.match(line)
        if match is None or (lines and int(match.group(1)) != first + len(lines)):
            break
        first = first or int(match.group(1))
        lines.append(match.group(2))
    return (first, tuple(lines)) if lines else None


_SED_RANGE = re.compile(r"^sed -n ['\"]?(\d{1,7})(?:,(\d{1,7}|\$))?p['\"]?(?: |$)")
_HEAD = re.compile(r"^head(?: -n)? -?(\d{1,7})\b")
_WHOLE = re.compile(r"^(?:cat(?: -n)?|nl(?: -ba)?|bat(?: -p)?) [^-|]\S*$")

TO_THE_END = 10_000_000
"""A number of lines that no file has."""


def _given_range(action: Action) -> tuple[int, int] | None:
    """The first line that a call asked for, and how many; None if it does not say it."""
    if action.command is not None:
        return _range_of_command(action.command)
    arguments = action.arguments
    if isinstance(pair := arguments.get("view_range"), list) and all(isinstance(value, int) for value in pair):
        first, last = (*pair, -1, -1)[:2]
        return max(1, first), last - first + 1 if last > 0 else TO_THE_END
    first = next((value for key in ("offset", "start_line") if isinstance(value := arguments.get(key), int)), 1)
    limit, last = arguments.get("limit"), arguments.get("end_line")
    count = limit if isinstance(limit, int) else last - first + 1 if isinstance(last, int) else TO_THE_END
    return max(1, first), count


def _range_of_command(command: str) -> tuple[int, int] | None:
    shell = re.sub(r"^\s*(?:cd|pushd) [^&;|\n]{1,200}(?:&&|;|\n)\s*", "", without_heredocs(command)[0].strip())
    if re.search(r"&&|\|\||[;\n]", shell):
        return None
    begun, count = 1, TO_THE_END
    for place, part in enumerate(part.strip() for part in shell.split("|")):
        if sed := _SED_RANGE.match(part):
            begun = int(sed.group(1))
            last = sed.group(2) or sed.group(1)
            count = TO_THE_END if last == "$" else int(last) - begun + 1
        elif head := _HEAD.match(part):
            count = min(count, int(head.group(1)))
        elif place or not _WHOLE.match(part):
            return None
    return begun, count
