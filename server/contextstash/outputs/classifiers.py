"""Classifiers of tool outputs: each describes one kind of output in one line, or returns None if it does not match."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contextstash.outputs.run_outcomes import error_lines, find_crash, find_test_run, has_any
from contextstash.outputs.truncate import line_count
from contextstash.safety.sanitize import clip, one_line

MAX_HEAD_CHARACTERS = 40_000
"""How much of an output its head is, on which most classifiers work: it bounds the time."""

MAX_JSON_CHARACTERS = 400_000
"""Longer JSON is not parsed but described by its beginning: parsing is the most expensive step here."""

MIN_TENTHS = 8
"""How many tenths of the lines must match before an output counts as a log, a search result or a listing. An output
that is not recognized gets the general digest."""


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """A tool output as the classifiers read it: `head` is its beginning, in whole lines."""

    tool: str
    argument: str
    text: str
    head: str
    is_error: bool


def _plural(number: int, noun: str) -> str:
    ending = "es" if noun.endswith(("ch", "s")) else "s"
    if noun.endswith("ry") and number != 1:
        noun, ending = noun[:-1], "ies"
    return f"{number:,} {noun}{'' if number == 1 else ending}"


def _names(names: Sequence[str], maximum: int = 4) -> str:
    shown = ", ".join(names[:maximum])
    return f"{shown}, …" if len(names) > maximum else shown


def _base_name(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1] or path


def describe_test_run(output: ToolOutput) -> str | None:
    run = find_test_run(output.text)
    return f"tests: {run.line()}" if run else None


def describe_crash(output: ToolOutput) -> str | None:
    return find_crash(output.text) or None


_DIFF = re.compile(r"^(?:diff --git |--- (?:a/|/dev/null|\S+\t)|\*\*\* (?:Update|Add|Delete) File: )", re.MULTILINE)
_DIFF_WORDS = ("diff --git ", "--- ", "*** ")
_DIFF_FILE = re.compile(r"^(?:\+\+\+ (?:b/)?|\*\*\* (?:Update|Add|Delete) File: )([^\t\n]{1,300})", re.MULTILINE)
_STAT = re.compile(r"^ ?(\d+) files? changed(?:, (\d+) insertions?\(\+\))?(?:, (\d+) deletions?\(-\))?", re.MULTILINE)


def describe_diff(output: ToolOutput) -> str | None:
    start = output.head[:4_000]
    if has_any(start, _DIFF_WORDS) and _DIFF.search(start) and re.search(r"^@@|^\*\*\* ", output.head, re.MULTILINE):
        files = [_base_name(name) for name in dict.fromkeys(_DIFF_FILE.findall(output.text))]
        added = len(re.findall(r"^\+(?!\+\+ )", output.text, re.MULTILINE))
        removed = len(re.findall(r"^-(?!-- )", output.text, re.MULTILINE))
        return f"diff of {_plural(len(files), 'file')} +{added:,} −{removed:,}: {_names(files)}"
    stat = _STAT.search(output.text[-2_000:]) if " changed" in output.text[-2_000:] else None
    if stat:
        count, added_lines, removed_lines = stat.groups(default="0")
        return f"{_plural(int(count), 'file')} changed, +{added_lines} −{removed_lines}"
    return None


_COMMIT = re.compile(r"^commit ([0-9a-f]{7,40})\b", re.MULTILINE)
_SUBJECT = re.compile(r"^commit [^\n]*\n(?:[A-Z][\w-]*:[^\n]*\n)*\n\s{4}([^\n]{1,200})", re.MULTILINE)
_SHORT_COMMIT = re.compile(r"\n(?:[*|\\/ ]* )?([0-9a-f]{7,12}) (\S[^\n]{0,200})(?=\n|\Z)")
_BRANCH = re.compile(r"^On branch (\S+)", re.MULTILINE)
_CHANGED = re.compile(r"^\t(?:(?:modified|new file|deleted|renamed):\s+)?(\S[^\n]{0,200})$", re.MULTILINE)


def describe_git(output: ToolOutput) -> str | None:
    commits = _COMMIT.findall(output.text) if output.head.lstrip().startswith("commit ") else []
    if commits:
        subject = _SUBJECT.search(output.head)
        newest = f"{commits[0][:9]} {subject.group(1) if subject else ''}"
        return f"{_plural(len(commits), 'commit')}, newest {newest}"
    branch = _BRANCH.search(output.head[:500]) if "On branch" in output.head[:500] else None
    if branch:
        changed = _CHANGED.findall(output.head)
        state = f"{_plural(len(changed), 'changed file')}: {_names(changed)}" if changed else "clean"
        return f"branch {branch.group(1)}, {state}"
    short = _SHORT_COMMIT.findall(f"\n{output.head}")
    if short and len(short) * 10 >= MIN_TENTHS * line_count(output.head):
        return f"{_plural(len(short), 'commit')}, newest {short[0][0]} {short[0][1]}"
    return None


_GREP_LINE = re.compile(r"^([^\s:]{1,250}):(\d{1,7})[:-]", re.MULTILINE)
_GREP_NUMBER = re.compile(r":\d{1,7}[:-]")
"""A pattern that each `_GREP_LINE` contains; it begins with a plain character, and is found ten times as fast."""

_SEARCHING = re.compile(r"(?:^|[\s/|;&(])(?:grep|rg|ag|ack|search)\b", re.IGNORECASE)
_FOUND_FILES = re.compile(r"\A(?:Found )?(\d+) (?:files?|matches)\b[^\n]*\n")


def describe_search(output: ToolOutput) -> str | None:
    searching = _SEARCHING.search(f" {output.tool} {output.argument}")
    fewest = 1 if searching else MIN_TENTHS * line_count(output.text) / 10
    possible = len(_GREP_NUMBER.findall(output.text)) >= fewest
    matches = _GREP_LINE.findall(output.text) if possible else []
    if matches and len(matches) >= fewest:
        files = list(dict.fromkeys(name for name, _ in matches))
        where = [f"{_base_name(name)}:{number}" for name, number in matches[:1]]
        where += [_base_name(name) for name in files[1:]]
        return f"{_plural(len(matches), 'match')} in {_plural(len(files), 'file')}: {_names(where)}"
    found = _FOUND_FILES.match(output.head)
    if found:
        names = [_base_name(line) for line in output.head[found.end() :].split("\n") if line.strip()]
        return f"{_plural(int(found.group(1)), 'file')}: {_names(names, 6)}"
    if searching and output.tool.lower() in ("grep", "search") and line_count(output.text) > 1:
        return f"{_plural(line_count(output.text), 'line')} found: {one_line(output.head.lstrip(), 100)}"
    return None


_LISTING = re.compile(
    r"(?:^|[\s/|;&(])(?:ls|find|tree|fd|glob|ls-files|list_dir|list_directory|list_files)\b", re.IGNORECASE
)
_LONG_ENTRY = re.compile(r"^[-dlbcps][rwxsStT-]{9}\S*\s+(?:\S+\s+){7}(\S[^\n]{0,200})$")
_PATH_LINE = re.compile(r"^[\w.@~+/ -]{1,250}$")


def describe_listing(output: ToolOutput) -> str | None:
    if not _LISTING.search(f" {output.tool} {output.argument}"):
        return None
    entries = [line for line in output.head.split("\n") if line.strip() and not line.startswith("total ")]
    names = [long.group(1) if (long := _LONG_ENTRY.match(line)) else line for line in entries]
    if not names or sum(1 for name in names if _PATH_LINE.match(name)) * 10 < MIN_TENTHS * len(names):
        return None
    count = max(len(entries), line_count(output.text) - 1) if len(output.text) > len(output.head) else len(entries)
    shown = [_base_name(name.strip()) for name in names if name not in (".", "..")]
    return f"{_plural(count, 'entry')}: {_names(shown, 6)}"


def describe_json(output: ToolOutput) -> str | None:
    start = output.head.lstrip()[:1]
    if start not in ("{", "["):
        return None
    if len(output.text) > MAX_JSON_CHARACTERS:
        keys = list(dict.fromkeys(re.findall(r'"([\w.-]{1,60})"\s*:', output.head[:4_000])))
        return f"JSON, {len(output.text):,} characters, keys: {_names(keys, 6)}" if keys else None
    try:
        value = json.loads(output.text)
    except (ValueError, RecursionError):
        return _describe_json_lines(output)
    return _json_line(value)


def _describe_json_lines(output: ToolOutput) -> str | None:
    try:
        value = json.loads(output.head.lstrip().split("\n", 1)[0])
    except (ValueError, RecursionError):
        return None
    count = _plural(line_count(output.text), "line")
    return f"{count}, the first {_json_line(value)}" if isinstance(value, dict) else None


def _json_line(value: object) -> str:
    if isinstance(value, list):
        line = f"JSON list of {_plural(len(value), 'item')}"
        first = value[0] if value else None
        return f"{line}, each with {_names([*map(str, first)], 6)}" if isinstance(first, dict) else line
    if not isinstance(value, dict):
        return "JSON value"
    for name in ("error", "message", "detail"):
        if isinstance(value.get(name), str):
            return f"JSON, {name}: {value[name]}"
    return f"JSON: {_names([_member(str(key), item) for key, item in value.items()], 8)}"


def _member(key: str, item: object) -> str:
    if isinstance(item, (list, dict)):
        return f"{key} ({len(item)})"
    shown = json.dumps(item, ensure_ascii=False) if not isinstance(item, str) else item
    return f"{key}={shown}" if len(shown) <= 24 else key


_HTTP = re.compile(r"^(?:< )?HTTP/[\d.]{1,3} (\d{3}[^\r\n]{0,60})", re.MULTILINE)
_CONTENT_TYPE = re.compile(r"^(?:< )?content-type: ([^\r\n;]{1,60})", re.MULTILINE | re.IGNORECASE)


def describe_http(output: ToolOutput) -> str | None:
    statuses = _HTTP.findall(output.head[:8_000]) if "HTTP/" in output.head[:8_000] else []
    if not statuses:
        return None
    kind = _CONTENT_TYPE.search(output.head[:8_000])
    return f"HTTP {statuses[-1].strip()}{', ' + kind.group(1).strip() if kind else ''}"


_READING = re.compile(
    r"(?:^|[\s/|;&(])(?:read|view|open|cat(?! *>)|sed|head|tail|nl|bat|less|get_file|fetch_file)\w*",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"^ {0,8}(\d{1,7})(?:→|\t|: ?| {2})", re.MULTILINE)
_NUMBERED_AFTER_BREAK = re.compile(r"\n {0,8}(\d{1,7})(?:→|\t|: ?| {2})")
_DEFINITION_PATTERN = (
    r"(?: {0,8}\d{1,7}(?:→|\t|: ?))?[ \t]{0,8}"
    r"(?:(?:export|default|pub(?:\(\w+\))?|public|private|protected|internal|static|final|abstract|async|unsafe|override|open"
    r"|data|sealed|declare) ){0,5}"
    r"(?:def|class|func|fn|function\*?|interface|struct|enum|trait|impl|type|module|namespace|record|object)"
    r"[ \t]+(?:\(\w{0,30} ?\*?[\w.\[\]]{0,60}\) )?([A-Za-z_$](?:[\w$]|[.:]{1,2}(?=\w)){0,80})"
)
DEFINITION = re.compile(f"^{_DEFINITION_PATTERN}", re.MULTILINE)
_DEFINITION_AFTER_BREAK = re.compile(f"\n{_DEFINITION_PATTERN}")
"""The same, found from the line break before it: a plain character is found much faster than the start of a line. So
is `_NUMBERED_AFTER_BREAK`."""

MAX_DEFINITIONS = 6
"""How many definitions of a file its digest names. They fill the line."""

_HEADING = re.compile(r"^(?: {0,8}\d{1,7}(?:→|\t))?#{1,3} (\S[^\n]{0,80})$", re.MULTILINE)


def describe_file(output: ToolOutput) -> str | None:
    if not _READING.search(f" {output.tool} {output.argument}"):
        return None
    lines = line_count(output.text)
    numbers = _NUMBERED_AFTER_BREAK.findall(f"\n{output.head[:2_000]}")
    extent = _plural(lines, "line")
    if len(numbers) >= min(3, lines):
        first = int(numbers[0])
        extent = f"lines {first:,}–{first + lines - 1:,}" if first > 1 else extent
    names = _first_names(_DEFINITION_AFTER_BREAK, f"\n{output.head}", MAX_DEFINITIONS + 1)
    if names:
        return f"{extent}; defines {_names(names, MAX_DEFINITIONS)}"
    headings = _HEADING.findall(output.head) if "#" in output.head else []
    if headings:
        return f"{extent}; headings {_names(headings, 4)}"
    return f"{extent}, begins: {_first_text(output.head)}"


def _first_names(pattern: re.Pattern[str], text: str, most: int) -> list[str]:
    """The first different names that a pattern finds."""
    found: dict[str, None] = {}
    for match in pattern.finditer(text):
        found[match.group(1)] = None
        if len(found) == most:
            break
    return list(found)


def _first_text(text: str) -> str:
    for line in text.split("\n", 200):
        shown = one_line(_NUMBERED.sub("", line, count=1), 100)
        if sum(character.isalnum() for character in shown) >= 3:
            return shown
    return one_line(text, 100)


def describe_errors(output: ToolOutput) -> str | None:
    """Matches only outputs that the tool itself marked as errors: in others "error" is usually a mere word."""
    if not output.is_error:
        return None
    lines = error_lines(output.text, 1)
    return lines[0] if lines else None


def describe_ends(output: ToolOutput) -> str:
    """The first and the last line that contain text; matches every output."""
    first = _first_text(output.head)
    lines = line_count(output.text)
    tail = output.text[-4_000:].rstrip().rsplit("\n", 40)[1:]
    last = next((shown for line in reversed(tail) if len(shown := one_line(line, 100)) > 3), "")
    if not last or last == first:
        return first or "no text"
    count = f" ({_plural(lines, 'line')})" if lines > 2 else ""
    return f"{clip(first, 80)} … {last}{count}"


CLASSIFIERS: tuple[Callable[[ToolOutput], str | None], ...] = (
    describe_test_run,
    describe_crash,
    describe_errors,
    describe_diff,
    describe_git,
    describe_http,
    describe_search,
    describe_listing,
    describe_json,
    describe_file,
)
"""In the order in which they are tried; the first that matches describes the output. Results of runs come first: they
matter more than the files or matches that the same command prints."""
