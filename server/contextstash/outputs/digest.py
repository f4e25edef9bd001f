"""Digests: one line that says what a tool output was, such as the outcome of a run, without its client's envelope.

>>> digest_output("Bash", "grep -rn lend src", "src/a.py:3:def lend\nsrc/b.py:1:import lend\n", is_error=False)
'2 lines in 2 files: a.py:3, b.py'
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from contextstash.outputs.limits import error_line, line_count
from contextstash.safety.sanitize import clip, counted, one_line, without_ansi

MAX_SCANNED, MAX_HEAD = 2_000_000, 40_000
"""Characters of an output that are read, half of them from each end; and at its start, in whole lines, by which most
kinds are recognized. They bound the time."""

MIN_TENTHS = 8
"""How many tenths of the lines must match before an output counts as a search result. An output that is not recognized
gets the general digest."""

MAX_DEFINITIONS, MAX_NAMED = 6, 4
"""How many definitions of a file its digest names, and how many files of a search. They fill the line."""

_GREP_LINE = re.compile(r"^([^\s:]{1,250}):(\d{1,7})[:-](?!\d{1,7}: )", re.MULTILINE)
_SEARCHING = re.compile(r"(?:^|[\s/|;&(])(?:grep|rg|ag|ack|search)\b", re.IGNORECASE)
_LIMITED, _PAGE = re.compile(r"\|\s*head\b"), "[Showing results with pagination"
"""Of a search that prints no more than some of its matches; the second is Claude Code's last line."""

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


def digest_output(tool: str, argument: str, text: str, is_error: bool, max_chars: int = 160) -> str:
    """Describes an output in one line of at most `max_chars` printable characters.

    A test run is described by its counts and first failure, a crash by its last line, a search by lines and files, a
    file by lines and definitions; anything else by its first and last line.
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
    return f"still running as {printed.running}, {'so far: ' if printed.text.strip() else ''}"


def _described(call: str, text: str, is_error: bool) -> str:
    """Results of runs come first: they matter more than the files or matches that the same command prints. The error
    line is one of an output that the tool itself marked as an error: in others "error" is usually a mere word."""
    if run := find_test_run(text):
        return f"tests: {run.line()}"
    if error := find_crash(text) or (error_line(text) if is_error else ""):
        return error
    lines = line_count(text)
    matches = _GREP_LINE.findall(text)
    if matches and len(matches) >= (1 if _SEARCHING.search(call) else MIN_TENTHS * lines / 10):
        files = [name.rstrip("/").rsplit("/", 1)[-1] for name in dict.fromkeys(name for name, _ in matches)]
        named = _listed([f"{files[0]}:{matches[0][1]}", *files[1:]], MAX_NAMED)
        cut = "the first " if _LIMITED.search(call) or _PAGE in text[-100:] else ""
        return f"{cut}{counted(len(matches), 'line')} in {counted(len(files), 'file')}: {named}"
    head = text[:MAX_HEAD]
    if len(text) > MAX_HEAD:
        head = head[: head.rfind("\n") + 1] or head
    first = _first_told(head.split("\n", 200)) or one_line(head, 100)
    if _READING.search(call):
        extent = counted(lines, "line")
        numbers = [*map(int, _NUMBERED.findall(head[:2_000]))]
        start = numbers[0] if numbers else 0
        # An empty line without a number was before a client's notice; a search prints numbers, too.
        if len(numbers) >= min(3, lines) and numbers == [*range(start, start + len(numbers))]:
            lines = line_count(text.rstrip("\n"))
            extent = f"lines {start:,}–{start + lines - 1:,}" if start > 1 else counted(lines, "line")
        names = list(dict.fromkeys(DEFINITION.findall(head)))
        return f"{extent}; defines {_listed(names, MAX_DEFINITIONS)}" if names else f"{extent}, begins: {first}"
    last = _first_told(reversed(text[-4_000:].rstrip().rsplit("\n", 40)[1:]))
    if not last or last == first:
        return first or "no text"
    count = f" ({counted(lines, 'line')})" if lines > 2 else ""
    return f"{clip(first, 80)} … {last}{count}"


def _listed(names: Sequence[str], maximum: int) -> str:
    return ", ".join(names[:maximum]) + ", …" * (len(names) > maximum)


MIN_TOLD = 3
"""Letters and digits of a line that tells something: one with fewer is a rule or a bracket."""


def _first_told(lines: Iterable[str]) -> str:
    """The first line that tells something, without its number."""
    shown = (one_line(_NUMBERED.sub("", line, count=1), 100) for line in lines)
    return next((line for line in shown if sum(map(str.isalnum, line)) >= MIN_TOLD), "")


MAX_END_CHARACTERS = 60_000
"""How much of each end of an output is searched for the outcome of a run: it bounds the time. Runners print counts
last, and programs their errors first or last."""

_RUN = re.compile(
    r"^=* ?(?:\d+ (?:subtests )?(?:failed|passed|errors?|skipped|deselected|xfailed|xpassed|warnings?|rerun)(?:, )?)+"
    r" in [\d.]+ ?s"
    r"|^test result: \w+\. \d+ passed; \d+ failed"
    r"|^Ran \d+ tests? in [^\n]{0,40}\n{1,3}(?:OK|FAILED)(?: \([^)\n]{1,80}\))?[ \t\r]*$"
    r"|^[ \t]*Tests:?[ \t]+(?=\d)[^\n]{0,100}(?:passed|failed)[^\n]{0,100}$",
    re.MULTILINE,
)
"""The lines with counts of pytest, cargo, unittest, and jest or vitest."""

_FIRST = re.compile(
    r"^(?:(?:FAILED|ERROR|FAIL:|ERROR:) |[ \t]*(?:● |✕ |× |FAIL[ \t]+)|test (?=\S+ \.\.\. FAILED))(\S[^\n]{0,300})",
    re.MULTILINE,
)
_WORDS = (" in ", "test result: ", "Ran ", "Tests")
"""One of them is in each such line: a word is found in a hundredth of the time of a regular expression."""

_COUNT = re.compile(r"(\d+) (failed|passed|error)|(?:failures|errors)=(\d+)|Ran (\d+) test")
_GO_FAIL = re.compile(r"^[ \t]*--- FAIL: (\S{1,200})", re.MULTILINE)
_GO_PASS = re.compile(r"^[ \t]*--- PASS: ", re.MULTILINE)
_GO_PACKAGE = re.compile(
    r"^(ok|FAIL)[ \t]+(\S{1,200})(?![^\n]*\[no tests to run\])[ \t]+(?:[\d.]+s\b|\(cached\)|\[)", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class TestRun:
    """The counts that a test runner printed; `passed` is None if it prints none. `first` is the first failure."""

    failed: int
    passed: int | None
    first: str = ""

    def line(self) -> str:
        """The run in words, such as "2 failed, 41 passed"."""
        counts = [f"{self.failed} failed"] if self.failed else []
        counts += [f"{self.passed} passed"] if self.passed is not None else []
        return (", ".join(counts) or "all passed") + (f"; first: {self.first}" if self.first else "")


def ends_of(text: str) -> str:
    """The text; if it is long, its head and its tail."""
    return text if len(text) <= 2 * MAX_END_CHARACTERS else f"{text[:MAX_END_CHARACTERS]}\n{text[-MAX_END_CHARACTERS:]}"


def find_test_run(text: str) -> TestRun | None:
    """The run of pytest, unittest, go test, cargo, jest or vitest in an output; None if there is none."""
    text = ends_of(text)
    lines = _RUN.findall(text) if any(word in text for word in _WORDS) else []
    if lines:
        failed = passed = ran = 0
        # Cargo prints a line for each crate, and a command may run tests several times.
        for number, word, bad, total in _COUNT.findall("\n".join(lines)):
            passed += int(number) if word == "passed" else 0
            failed += int(number or 0) * (word != "passed") + int(bad or 0)
            ran += int(total or 0)
        first = _FIRST.search(text) if failed else None
        told = first[1].removesuffix(" ... FAILED").replace(" - ", " ", 1) if first else ""
        return TestRun(failed, passed or max(0, ran - failed), one_line(told, 120))
    if not ("FAIL" in text or "ok " in text or "ok\t" in text):
        return None
    # Go prints no counts: the lines of tests and packages are counted.
    packages, failures = _GO_PACKAGE.findall(text), _GO_FAIL.findall(text)
    failures = failures or [name for word, name in packages if word == "FAIL"]
    if not packages and not failures:
        return None
    is_bad = "\nFAIL\n" in f"\n{text}\n"  # the last line, if the packages that failed are not shown
    return TestRun(len(failures) or int(is_bad), len(_GO_PASS.findall(text)) or None, failures[0] if failures else "")


_TRACEBACK = "Traceback (most recent call last)"


def find_crash(text: str) -> str:
    """The line with the error that ended a Python program; empty if there is none."""
    text = ends_of(text)
    traces = re.split(rf"^[ \t]*{re.escape(_TRACEBACK)}", text, flags=re.MULTILINE)[1:] if _TRACEBACK in text else []
    lines = traces[-1].split("\n")[1:] if traces else []
    return one_line(next((line for line in lines if line.strip() and not line[0].isspace()), ""), 300)


@dataclass(frozen=True, slots=True)
class Printed:
    """A command's output; `exit_code` is None if the output does not contain it. `running` is the client's number of
    the process if the command still ran, else empty."""

    text: str
    exit_code: int | None = None
    running: str = ""


MAX_HEADER_CHARACTERS = 2_000
"""How much of each end is searched for an envelope: Codex's headers are a few short lines."""

_CHUNK_HEADER = re.compile(
    r"\A(?:(?:Command|Chunk ID|Wall time|Process exited with code|Process running with session ID"
    r"|Original token count|Total output lines|Exit code|Output):[^\n]*\n"
    r"|Process (?:exited with code|running with session ID) [^\n]*\n"
    r"|Script (?:completed|failed|running with \w+ ID \d+)\n|Wall time [\d.]+ seconds\n|\n)+"
)
_EXITED = re.compile(r"(?:exited with code|Exit code:?) (-?\d{1,5})")
_RUNNING = re.compile(r"^(?:Process|Script) running with (?:session|cell) ID (\d{1,12})$", re.MULTILINE)
_BACKGROUND = re.compile(r"\ACommand running in background with ID: (\w{1,40})")
"""How Codex and Claude Code say that a command goes on."""

_TAGGED = re.compile(r"\A\s*<returncode>(-?\d{1,5})</returncode>\s*(?:<warning>.*?</warning>\s*)?", re.DOTALL)
_TAGS = re.compile(r"</?(?:output|output_head|output_tail|stdout|stderr|elided_chars)>\n?")
_PLAIN = re.compile(r"\AExit code (\d{1,5})\n?")
TOOL_ERROR = "<tool_use_error>"
FOLDER_RESET = "Shell cwd was reset to "
_JSON_ENVELOPE = '{"output":'


def unwrap(text: str) -> Printed:
    """A command's output and its exit code, without the envelopes of common agents: Codex's headers and its JSON
    envelope, `<returncode>` tags, `Exit code n` on the first line, reminders at the end."""
    text = without_reminders(without_ansi(text))
    before, reset, folder = text.rpartition(FOLDER_RESET)
    if reset and "\n" not in folder.rstrip():
        text = before.removesuffix("\n")
    if text.startswith(_JSON_ENVELOPE):
        with suppress(ValueError, RecursionError):
            match json.loads(text):
                case {"output": str(output), "metadata": {"exit_code": int(status)}}:
                    return Printed(output, status)
                case {"output": str(output)}:
                    return Printed(output)
    if tagged := _TAGGED.match(text[:MAX_HEADER_CHARACTERS]):
        return Printed(_TAGS.sub("", text[tagged.end() :]), int(tagged[1]))
    if text.startswith(TOOL_ERROR):
        return Printed(text.removeprefix(TOOL_ERROR).removesuffix("</tool_use_error>"))
    if plain := _PLAIN.match(text):
        return Printed(text[plain.end() :], int(plain[1]))
    if header := _CHUNK_HEADER.match(text[:MAX_HEADER_CHARACTERS]):
        code, running = _EXITED.search(header.group()), _RUNNING.search(header.group())
        exit_code = int(code[1]) if code else 1 if text.startswith("Script failed\n") else None
        return Printed(text[header.end() :], exit_code, running[1] if running else "")
    background = _BACKGROUND.match(text)
    return Printed(text, running=background[1] if background else "")


def without_reminders(text: str) -> str:
    """The text without the reminders that a host inserts into outputs and requests."""
    begin, end = "<system-reminder>", "</system-reminder>"
    kept: list[str] = []
    place = 0
    while (start := text.find(begin, place)) >= 0 and (stop := text.find(end, start)) >= 0:
        kept.append(text[place:start])
        place = stop + len(end)
    return "".join([*kept, text[place:]])


_HEREDOC = re.compile(
    r"<<(-)?[ \t]*(['\"]?)(\w{1,40})\2([^\n]*)(?:\n(.*?))??(?:\n(?(1)[ \t]*)\3\r?$|\Z)", re.MULTILINE | re.DOTALL
)


def without_heredocs(command: str, mark: str = " ") -> tuple[str, list[str]]:
    """The command with a `mark` in place of its here-documents, and the lines of these. Only a delimiter alone in its
    line ends one, with tabs before it behind `<<-`: without it, all that follows is in the file, and nothing of it is
    run."""
    bodies: list[str] = []

    def taken(found: re.Match[str]) -> str:
        bodies.extend([] if found[5] is None else found[5].split("\n"))
        return f"{mark}{found[4]}"

    return _HEREDOC.sub(taken, command), bodies
