"""A call in one line: what was run or changed, and what it printed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from contextstash.events.calls import Call
from contextstash.events.files import CUT
from contextstash.events.kinds import FileUse, Replaced
from contextstash.events.shell import as_run, bare_command, runner_of
from contextstash.outputs.counts import counted
from contextstash.outputs.digest import DEFINITION, digest_output, still_running
from contextstash.outputs.run_outcomes import ends_of
from contextstash.safety.sanitize import one_line

MAX_CALL = 160
"""Characters that are shown of a call."""

WAITS = "no result yet"

RUNNING = ": still running, "
"""Behind a call whose command goes on."""

MAX_CHANGED_LINE = 100
"""Characters that are shown of a line that was changed."""


MIN_CHANGED_LINE = 16
"""Characters. A shorter line, or a mere string such as an import, says little of a change that has others."""

MAX_SHORT = 300
"""Characters of an output that is told whole, in one line."""

MAX_FAILURES = 8
"""Lines that are told of a run that failed."""

MAX_FOUND, MAX_FOUND_LINE = 10, 120
"""Lines that a search found which are told, if there are no more, and characters of each."""


def call_line(call: Call) -> str:
    """The call: a command as it was run, else the tool with its argument, a path with its end."""
    if call.command is not None:
        outside = " outside the sandbox" if "escalated" in str(call.arguments.get("sandbox_permissions", "")) else ""
        return f"ran `{one_line(as_run(call.command).replace('`', chr(39)), MAX_CALL)}`{outside}"
    argument = "" if call.argument.startswith("*** Begin Patch") else call.argument
    if argument.startswith("/") and len(argument) > MAX_CALL:
        argument = f"…{argument[1 - MAX_CALL :]}"
    wanted = call.arguments.get("pattern", "")
    searched = (
        f" for `{one_line(wanted, MAX_CALL)}`" if isinstance(wanted, str) and wanted not in ("", argument) else ""
    )
    return f"{one_line(call.tool, 40)} {one_line(argument, MAX_CALL)}".strip() + searched


def outcome_line(call: Call, uses: Sequence[FileUse]) -> str:
    """The call with what came of it."""
    made = call_line(call)
    if call.output is None:
        return f"{made}: {'no result is recorded' if call.ended else WAITS}"
    if call.refused:
        return f"{made}: refused by the user"
    text = call.output.text.strip()
    changes = [use for use in uses if use.verb not in ("read", "run")]
    silent = call.command is None or not text
    if changes and not call.failed and silent and (told := next(filter(None, map(change_line, changes)), "")):
        name = changes[0].path.rpartition("/")[2]
        return f"{made}: {'' if name in made else f'{one_line(changes[0].path, MAX_CALL)}: '}{told}"
    code = call.output.exit_code
    state = f"exit {code}: " if code else still_running(call.output)
    if call.failed and (call.tests or runner_of(call.command or "")):
        return f"{made}: {state}{failures_of(call)}"
    if call.command is not None and 0 < len(text) <= MAX_SHORT:
        return f"{made}: {state}{one_line(text.replace(chr(10), ' / '), MAX_SHORT + 100)}"
    part = "of what a cut output shows: " if CUT.search(call.output.text) else ""
    digest = _found(call, text) or digest_output(call.tool, call.argument, call.output.text, call.is_error)
    return f"{made}: {state}{part}{digest}"


def _found(call: Call, text: str) -> str:
    """The lines that a search found, if they are few."""
    if not _SEARCHES.search(bare_command(call.command) if call.command else call.tool):
        return ""
    lines = [one_line(line, MAX_FOUND_LINE) for line in text.split("\n") if line.strip()]
    return " / ".join(lines) if len(lines) <= MAX_FOUND else ""


_SEARCHES = re.compile(r"^(?:\w+=\S+ )*(?:rg|ag|e?grep|git grep)\b|^(?!.*web)\w*(?:grep|search)", re.IGNORECASE)
"""Commands and tools that look for lines."""


def change_line(use: FileUse) -> str:
    """What a change of a file adds: the first definition, or else the first line, marked as in a diff; if it only
    removes lines, the first of them; of a whole file how many lines it has. Empty if the call does not show it."""
    if use.text is not None:
        return f"wrote {counted(len(use.text.splitlines()), 'line')}"
    for each in use.replaced:
        old, new = each.old.split("\n"), each.new.split("\n")
        added = [f"+ {line.strip()}" for line in new if line.strip() and line not in old]
        removed = (f"- {line.strip()}" for line in old if line.strip() and line not in new)
        defined = (line for line in added if DEFINITION.match(line[2:]))
        long = (line for line in added if len(line) >= MIN_CHANGED_LINE and line[2] not in "\"'")
        if line := next(defined, "") or next(long, "") or next(iter(added), "") or next(removed, ""):
            return one_line(line, MAX_CHANGED_LINE)
    return ""


_PROSE = re.compile(r"\.(?:mdx?|txt|rst)$")
_HAS_BODY = re.compile(r"[({:=<;]")
"""What a line of code that defines something has, and a sentence that begins with "type" or "class" mostly has not."""


def changes_of(use: FileUse) -> dict[str, str]:
    """What a change is in, as far as the call shows it: the functions and classes, each behind "+ " if it is put in,
    "- " if it is taken out, or else "in "; of a change that is in none, a line of it."""
    found: dict[str, str] = {}
    for each in () if _PROSE.search(use.path) else (Replaced("", use.text or ""), *use.replaced):
        old, new = each.old.split("\n"), each.new.split("\n")
        before, after = ({name for line in lines if (name := _defined(line))} for lines in (old, new))
        for name in (*_touched(old, new, each.within), *_touched(new, old, each.within)):
            found[name] = "+ " if name in after - before else "- " if name in before - after else found.get(name, "in ")
    line = "" if found or use.text is not None else change_line(use)
    return {line: ""} if line and line[2] not in "\"'" else found  # an import says little


def _defined(line: str) -> str:
    found = DEFINITION.match(line)
    return str(found[1]) if found and _HAS_BODY.search(line) else ""


def _touched(lines: Sequence[str], others: Collection[str], within: str) -> Iterator[str]:
    """What defines the lines that are not among the others. A body is indented more than the line that defines it."""
    name, depth = _defined(within), _depth(within)
    for line in filter(str.strip, lines):
        if defined := _defined(line):
            name, depth = defined, _depth(line)
        elif _depth(line) <= depth and line.lstrip()[0] not in ")]}":
            name = ""
        if name and line not in others:
            yield name


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


_FAILURE = re.compile(
    r"^[ \t]*(--- FAIL: \S+.*|FAILED \S.*|ERROR \S.*|# \S+|FAIL[ \t]+\S+.*|E {2,}\S.*|panic: .*|test \S+ \.\.\. FAILED"
    r"|\S*\w\.\w{1,5}:\d+(?::\d+)?:? \S.*"
    r"|.*\b(?:[Ee]rror|[Cc]annot|[Nn]o such|not permitted|denied|please|undefined)\b.*)$",
    re.MULTILINE,
)
"""What says where and why a run failed."""

_NO_REASON = re.compile(r"task failed|^error: Recipe|exit (?:code|status) \d|^# \S+$|^FAIL\s+\S+\s+[\d.]+s$")
"""Of these only what else is said tells the reason."""


def failures_of(call: Call) -> str:
    """All places and reasons that a run which failed printed, up to MAX_FAILURES; else the line that says an error."""
    text = ends_of(call.output.text) if call.output else ""
    found = dict.fromkeys(one_line(line, MAX_CALL) for line in _FAILURE.findall(text))
    told = [line for line in found if not _NO_REASON.search(line)] or [*found]
    more = [f"and {len(told) - MAX_FAILURES} more"] if len(told) > MAX_FAILURES else []
    counts = [f"{call.tests.failed} failed"] if call.tests and call.tests.failed else []
    lines = [*counts, *told[:MAX_FAILURES], *more]
    return "; ".join(lines) if told else call.error_message
