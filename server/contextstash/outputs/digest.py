"""Digests: one line that says what a tool output was.

>>> digest_output("Bash", "grep -rn lend src", "src/a.py:3:def lend\nsrc/b.py:1:import lend\n", is_error=False)
'2 matches in 2 files: a.py:3, b.py'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contextstash.outputs.counts import counted
from contextstash.outputs.measures import line_count
from contextstash.outputs.run_outcomes import find_crash, find_test_run
from contextstash.outputs.salient import error_line
from contextstash.outputs.shell_envelope import Printed, unwrap
from contextstash.safety.sanitize import clip, one_line

MAX_SCANNED = 2_000_000
"""Characters of an output that are read, half of them from each end; it bounds the time."""

MAX_HEAD = 40_000
"""Characters at the start of an output, in whole lines, that most kinds are recognized by; it bounds the time."""

MIN_TENTHS = 8
"""How many tenths of the lines must match before an output counts as a search result or a listing. An output that is
not recognized gets the general digest."""

MAX_DEFINITIONS = 6
"""How many definitions of a file its digest names. They fill the line."""


@dataclass(frozen=True, slots=True)
class _Output:
    """A tool output and its beginning, in whole lines; `call` is the tool and its main argument."""

    call: str
    text: str
    head: str
    is_error: bool


def digest_output(tool: str, argument: str, text: str, is_error: bool, max_chars: int = 160) -> str:
    """Describes an output in one line of at most `max_chars` printable characters.

    A test run is described by its counts and first failure, a crash by its last line, a diff by files and lines, a
    search by matches and files, a file by lines and definitions, and so on; anything else by its first and last line.
    """
    printed = unwrap(text if len(text) <= MAX_SCANNED else text[: MAX_SCANNED // 2] + "\n" + text[-MAX_SCANNED // 2 :])
    line = _described(f" {tool} {argument}", printed.text, is_error) if printed.text.strip() else "no output"
    line = still_running(printed) + line
    if printed.exit_code:
        line = f"exit {printed.exit_code}: {line}"
    elif is_error:
        line = f"error: {line}"
    return one_line(line, max_chars)


def still_running(printed: Printed) -> str:
    """What precedes the description of an output if its command goes on; empty if it has ended."""
    if not printed.running:
        return ""
    return "still running, so far: " if printed.text.strip() else "still running, "


def _described(call: str, text: str, is_error: bool) -> str:
    head = text[:MAX_HEAD]
    if len(text) > MAX_HEAD:
        head = head[: head.rfind("\n") + 1] or head
    output = _Output(call, text, head, is_error)
    return next((line for describe in _KINDS if (line := describe(output))), "") or _ends(output)


def _names(names: Sequence[str], maximum: int = 4) -> str:
    shown = ", ".join(names[:maximum])
    return f"{shown}, …" if len(names) > maximum else shown


def _base_name(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1] or path


def _outcome(output: _Output) -> str | None:
    """The tests that were run, the error that ended the program, or the error line of an output that the tool itself
    marked as an error: in others "error" is usually a mere word."""
    if run := find_test_run(output.text):
        return f"tests: {run.line()}"
    return find_crash(output.text) or (error_line(output.text) if output.is_error else None)


_DIFF = re.compile(r"^(?:diff --git |--- (?:a/|/dev/null|\S+\t)|\*\*\* (?:Update|Add|Delete) File: )", re.MULTILINE)
_DIFF_FILE = re.compile(r"^(?:\+\+\+ (?:b/)?|\*\*\* (?:Update|Add|Delete) File: )([^\t\n]{1,300})", re.MULTILINE)


def _diff(output: _Output) -> str | None:
    if _DIFF.search(output.head[:4_000]) and re.search(r"^@@|^\*\*\* ", output.head, re.MULTILINE):
        files = [_base_name(name) for name in dict.fromkeys(_DIFF_FILE.findall(output.text))]
        added = len(re.findall(r"^\+(?!\+\+ )", output.text, re.MULTILINE))
        removed = len(re.findall(r"^-(?!-- )", output.text, re.MULTILINE))
        return f"diff of {counted(len(files), 'file')} +{added:,} −{removed:,}: {_names(files)}"
    return None


_GREP_LINE = re.compile(r"^([^\s:]{1,250}):(\d{1,7})[:-]", re.MULTILINE)
_SEARCHING = re.compile(r"(?:^|[\s/|;&(])(?:grep|rg|ag|ack|search)\b", re.IGNORECASE)


def _search(output: _Output) -> str | None:
    fewest = 1 if _SEARCHING.search(output.call) else MIN_TENTHS * line_count(output.text) / 10
    matches = _GREP_LINE.findall(output.text)
    if matches and len(matches) >= fewest:
        files = list(dict.fromkeys(name for name, _ in matches))
        where = [f"{_base_name(name)}:{number}" for name, number in matches[:1]]
        where += [_base_name(name) for name in files[1:]]
        return f"{counted(len(matches), 'match')} in {counted(len(files), 'file')}: {_names(where)}"
    return None


_READING = re.compile(
    r"(?:^|[\s/|;&(])(?:read|view|open|cat(?! *>)|sed|head|tail|nl|bat|less|get_file|fetch_file)\w*",
    re.IGNORECASE,
)
DEFINITION = re.compile(
    r"^(?: {0,8}\d{1,7}(?:→|\t|: ?))?[ \t]{0,8}"
    r"(?:(?:export|default|pub(?:\(\w+\))?|public|private|protected|internal|static|final|abstract|async|unsafe|override|open"
    r"|data|sealed|declare) ){0,5}"
    r"(?:def|class|func|fn|function\*?|interface|struct|enum|trait|impl|type|module|namespace|record|object)"
    r"[ \t]+(?:\(\w{0,30} ?\*?[\w.\[\]]{0,60}\) )?([A-Za-z_$](?:[\w$]|[.:]{1,2}(?=\w)){0,80})",
    re.MULTILINE,
)
"""A line of source code that defines something, with or without a line number before it; its group is the name."""

_NUMBERED = re.compile(r"^ {0,8}(\d{1,7})(?:→|\t|: ?| {2})", re.MULTILINE)


def _file(output: _Output) -> str | None:
    if not _READING.search(output.call):
        return None
    lines = line_count(output.text)
    numbers = _NUMBERED.findall(output.head[:2_000])
    if len(numbers) >= min(3, lines):  # an empty line without a number was before a client's notice
        lines = line_count(output.text.rstrip("\n"))
    extent = counted(lines, "line")
    if len(numbers) >= min(3, lines):
        first = int(numbers[0])
        extent = f"lines {first:,}–{first + lines - 1:,}" if first > 1 else extent
    names = list(dict.fromkeys(DEFINITION.findall(output.head)))
    if names:
        return f"{extent}; defines {_names(names, MAX_DEFINITIONS)}"
    return f"{extent}, begins: {_first_text(output.head)}"


def _first_text(text: str) -> str:
    for line in text.split("\n", 200):
        shown = one_line(_NUMBERED.sub("", line, count=1), 100)
        if sum(character.isalnum() for character in shown) >= 3:
            return shown
    return one_line(text, 100)


def _ends(output: _Output) -> str:
    """The first and the last line that contain text; matches every output."""
    first = _first_text(output.head)
    lines = line_count(output.text)
    tail = output.text[-4_000:].rstrip().rsplit("\n", 40)[1:]
    last = next((shown for line in reversed(tail) if len(shown := one_line(line, 100)) > 3), "")
    if not last or last == first:
        return first or "no text"
    count = f" ({counted(lines, 'line')})" if lines > 2 else ""
    return f"{clip(first, 80)} … {last}{count}"


_KINDS: tuple[Callable[[_Output], str | None], ...] = (_outcome, _diff, _search, _file)
"""In the order in which they are tried; the first that matches describes the output. Results of runs come first: they
matter more than the files or matches that the same command prints."""
