"""Digests: one line that says what a tool output was, such as the outcome of a run, without its client's envelope.

>>> digest_output("Bash", "grep -rn lend src", "src/a.py:3:def lend\nsrc/b.py:1:import lend\n", is_error=False)
'2 matches in 2 files: a.py:3, b.py'
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from contextstash.outputs.limits import error_line, line_count
from contextstash.safety.sanitize import clip, counted, one_line, without_ansi


@dataclass(frozen=True, slots=True)
class Printed:
    """A command's output; `exit_code` is None if the output does not contain it. `process` is the client's number of
    the process if the command was still running."""

    text: str
    exit_code: int | None = None
    process: str = ""

    @property
    def running(self) -> bool:
        return bool(self.process)


_CHUNK_HEADER = re.compile(
    r"\A(?:(?:Command|Chunk ID|Wall time|Process exited with code|Process running with session ID"
    r"|Original token count|Total output lines|Exit code|Output):[^\n]*\n"
    r"|Process (?:exited with code|running with session ID) [^\n]*\n"
    r"|Script (?:completed|failed|running with \w+ ID \d+)\n|Wall time [\d.]+ seconds\n|\n)+"
)
_EXITED = re.compile(r"(?:exited with code|Exit code:?) (-?\d{1,5})")
_RUNNING = re.compile(r"^(?:Process|Script) running with (?:session|cell) ID (\d{1,12})$", re.MULTILINE)
_SCRIPT_FAILED = "Script failed\n"
_BACKGROUND = re.compile(r"\ACommand running in background with ID: (\w{1,40})")
"""How Codex and Claude Code say that a command goes on."""

_TAGGED = re.compile(r"\A\s*<returncode>(-?\d{1,5})</returncode>\s*(?:<warning>.*?</warning>\s*)?", re.DOTALL)
_TAGS = re.compile(r"</?(?:output|output_head|output_tail|stdout|stderr|elided_chars)>\n?")
_PLAIN = re.compile(r"\AExit code (\d{1,5})\n?")
TOOL_ERROR = "<tool_use_error>"
REMINDER_START, REMINDER_END = "<system-reminder>", "</system-reminder>"
FOLDER_RESET = "Shell cwd was reset to "
_FOLDER_RESET = re.compile(rf"\n?{FOLDER_RESET}[^\n]*\s*\Z")
_JSON_ENVELOPE = '{"output":'
_HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)(\w{1,40})\1")
MAX_HEADER_CHARACTERS = 2_000
"""How much of each end is searched for an envelope: Codex's headers are a few short lines."""


def unwrap(text: str) -> Printed:
    """A command's output and its exit code, without the envelopes of common agents: Codex's headers and its JSON
    envelope, `<returncode>` tags, `Exit code n` on the first line, reminders at the end."""
    text = without_ansi(text)
    text = without_reminders(text)
    if FOLDER_RESET in text[-MAX_HEADER_CHARACTERS:]:
        text = text[:-MAX_HEADER_CHARACTERS] + _FOLDER_RESET.sub("", text[-MAX_HEADER_CHARACTERS:])
    if text.startswith(_JSON_ENVELOPE):
        return _from_envelope(text)
    tagged = _TAGGED.match(text[:MAX_HEADER_CHARACTERS])
    if tagged:
        return Printed(_TAGS.sub("", text[tagged.end() :]), int(tagged.group(1)))
    if text.startswith(TOOL_ERROR):
        return Printed(text.removeprefix(TOOL_ERROR).removesuffix("</tool_use_error>"))
    plain = _PLAIN.match(text)
    if plain:
        return Printed(text[plain.end() :], int(plain.group(1)))
    header = _CHUNK_HEADER.match(text[:MAX_HEADER_CHARACTERS])
    if header:
        code = _EXITED.search(header.group())
        running = _RUNNING.search(header.group())
        process = running.group(1) if running else ""
        exit_code = int(code.group(1)) if code else 1 if text.startswith(_SCRIPT_FAILED) else None
        return Printed(text[header.end() :], exit_code, process)
    background = _BACKGROUND.match(text)
    return Printed(text, process=background.group(1) if background else "")


def without_reminders(text: str) -> str:
    """The text without the reminders that a host inserts into outputs and requests."""
    kept: list[str] = []
    place = 0
    while (start := text.find(REMINDER_START, place)) >= 0:
        end = text.find(REMINDER_END, start)
        if end < 0:
            break
        kept.append(text[place:start])
        place = end + len(REMINDER_END)
    return "".join([*kept, text[place:]]) if kept else text


def _from_envelope(text: str) -> Printed:
    try:
        envelope = json.loads(text)
    except (ValueError, RecursionError):
        return Printed(text)
    if not isinstance(envelope, dict) or not isinstance(envelope.get("output"), str):
        return Printed(text)
    metadata = envelope.get("metadata")
    code = metadata.get("exit_code") if isinstance(metadata, dict) else None
    return Printed(envelope["output"], code if isinstance(code, int) else None)


def without_json_envelopes(text: str) -> str:
    """The text; each line that is a JSON envelope is what the command printed, with its line breaks."""
    if _JSON_ENVELOPE not in text:
        return text
    lines = text.split("\n")
    return "\n".join(_from_envelope(line).text if line.startswith(_JSON_ENVELOPE) else line for line in lines)


def without_heredocs(command: str, mark: str = " ") -> tuple[str, list[str]]:
    """The command with a `mark` in place of its here-documents, and the lines of these. Only a delimiter alone in its
    line ends one, with tabs before it behind `<<-`: without it, all that follows is in the file, and nothing of it is
    run."""
    may_be_indented = "<<-" in command
    kept: list[str] = []
    bodies: list[str] = []
    closing: str | None = None
    for line in command.split("\n"):
        if closing is not None:
            if (line.strip() if may_be_indented else line.strip("\r")) == closing:
                closing = None
            else:
                bodies.append(line)
            continue
        found = _HEREDOC.search(line)
        closing = found.group(2) if found else None
        kept.append(_HEREDOC.sub(mark, line))
    return "\n".join(kept), bodies


MAX_END_CHARACTERS = 60_000
"""How much of each end of an output is searched: it bounds the time. Runners print counts last, and
programs their errors first or last."""


@dataclass(frozen=True, slots=True)
class TestRun:
    """The counts that a test runner printed; `passed` is None if it prints none. `first` is the first failure."""

    failed: int
    passed: int | None
    first: str = ""

    def line(self) -> str:
        """The run in words, such as "2 failed, 41 passed"."""
        counts = f"{self.failed} failed" if self.failed else "all passed"
        if self.passed is not None:
            counts = f"{self.failed} failed, {self.passed} passed" if self.failed else f"{self.passed} passed"
        return f"{counts}; first: {self.first}" if self.first else counts


def ends_of(text: str) -> str:
    """The text; if it is long, its head and its tail."""
    return text if len(text) <= 2 * MAX_END_CHARACTERS else f"{text[:MAX_END_CHARACTERS]}\n{text[-MAX_END_CHARACTERS:]}"


class _Runner(NamedTuple):
    """How a runner's output is read: a `word` that is in all of it (a word is found in a hundredth of the time of a
    regular expression, and most outputs are of no test run), the lines with counts, and the first failure. The last
    line counts, or all of them if it `adds` them up."""

    word: str
    counts: re.Pattern[str]
    first: re.Pattern[str]
    adds: bool = False


_COUNT = re.compile(r"(\d+) (failed|passed|error)|(failures|errors)=(\d+)|Ran (\d+) test")
_RUNNERS = (
    _Runner(  # pytest
        " in ",
        re.compile(
            r"^=* ?((?:\d+ (?:failed|passed|errors?|skipped|deselected|xfailed|xpassed|warnings?|rerun)(?:, )?)+)"
            r" in [\d.]+ ?s",
            re.MULTILINE,
        ),
        re.compile(r"^(?:FAILED|ERROR) (\S[^\n]{0,300})", re.MULTILINE),
    ),
    _Runner(  # cargo: a line for each crate
        "test result: ",
        re.compile(r"^test result: \w+\. (\d+ passed; \d+ failed)", re.MULTILINE),
        re.compile(r"^test (\S{1,200}) \.\.\. FAILED", re.MULTILINE),
        adds=True,
    ),
    _Runner(  # unittest
        "Ran ",
        re.compile(
            r"^(Ran \d+ tests? in [^\n]{0,40}\n{1,3}(?:OK|FAILED)(?: \([^)\n]{1,80}\))?)[ \t\r]*$", re.MULTILINE
        ),
        re.compile(r"^(?:FAIL|ERROR): (\S[^\n]{0,200})", re.MULTILINE),
    ),
    _Runner(  # jest, vitest
        "Tests",
        re.compile(r"^[ \t]*Tests:?[ \t]+(?=\d)([^\n]{0,100}(?:passed|failed)[^\n]{0,100})$", re.MULTILINE),
        re.compile(r"^[ \t]*(?:● |✕ |× |FAIL[ \t]+)(\S[^\n]{0,200})", re.MULTILINE),
    ),
)


def find_test_run(text: str) -> TestRun | None:
    """The run of pytest, unittest, go test, cargo, jest or vitest in an output; None if there is none."""
    text = ends_of(text)
    for runner in _RUNNERS:
        if runner.word in text and (lines := runner.counts.findall(text)):
            failed, passed = _counted(lines if runner.adds else lines[-1:])
            match = runner.first.search(text) if failed else None
            return TestRun(failed, passed, one_line(match[1].replace(" - ", " ", 1), 120) if match else "")
    return _go(text) if "FAIL" in text or "ok " in text or "ok\t" in text else None


def _counted(lines: Sequence[str]) -> tuple[int, int]:
    """How many tests failed and passed by the counts in these lines."""
    failed = passed = ran = 0
    for line in lines:
        for number, word, _, bad, total in _COUNT.findall(line):
            passed += int(number) if word == "passed" else 0
            failed += int(number or 0) * (word != "passed") + int(bad or 0)
            ran += int(total or 0)
    return failed, passed or max(0, ran - failed)


_GO_FAIL = re.compile(r"^[ \t]*--- FAIL: (\S{1,200})", re.MULTILINE)
_GO_PASS = re.compile(r"^[ \t]*--- PASS: ", re.MULTILINE)
_GO_PACKAGE = re.compile(r"^(ok|FAIL)[ \t]+(\S{1,200})", re.MULTILINE)


def _go(text: str) -> TestRun | None:
    """Go prints no counts: the lines of tests and packages are counted."""
    packages, failures = _GO_PACKAGE.findall(text), _GO_FAIL.findall(text)
    failed = failures or [name for word, name in packages if word == "FAIL"]
    if not packages and not failed:
        return None
    return TestRun(len(failed), len(_GO_PASS.findall(text)) or None, failed[0] if failed else "")


_TRACEBACK = re.compile(r"^[ \t]*Traceback \(most recent call last\)", re.MULTILINE)
_PYTHON_ERROR = re.compile(
    r"^(?:E[ \t]+)?([A-Za-z_][\w.]{0,80}(?:Error|Exception|Warning|Interrupt|Exit|DoesNotExist)"
    r"\b[^\n]{0,300})",
    re.MULTILINE,
)
_PANIC = re.compile(r"^(panic: [^\n]{1,300}|thread '[^'\n]{1,80}' (?:\(\d+\) )?panicked at [^\n]{1,200})", re.MULTILINE)
_STACK = re.compile(r"^((?:Uncaught )?[A-Z]\w{0,60}(?:Error|Exception)\b: [^\n]{1,300})\n[ \t]+at ", re.MULTILINE)


def find_crash(text: str) -> str:
    """The line with the error that ended a program (Python, Go, Rust, JavaScript, Java); empty if there is none."""
    text = ends_of(text)
    traces = list(_TRACEBACK.finditer(text)) if "Traceback (most recent" in text else []
    if traces:
        rest = text[traces[-1].end() :]
        error = _PYTHON_ERROR.search(rest)
        plain = [line for line in rest.split("\n")[1:] if line.strip() and not line[0].isspace()]
        line = error.group(1) if error else plain[0] if plain else ""
        return one_line(line, 300)
    for word, pattern in (("panic", _PANIC), ("at ", _STACK)):
        match = pattern.search(text) if word in text else None
        if match:
            return one_line(match.group(1), 300)
    return ""


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
