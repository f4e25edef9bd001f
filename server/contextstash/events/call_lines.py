"""A call in one line: what was run or changed, and what it printed."""

from __future__ import annotations

from collections.abc import Sequence

from contextstash.events.calls import Call
from contextstash.events.kinds import FileUse
from contextstash.events.shell import as_run
from contextstash.outputs.counts import counted
from contextstash.outputs.digest import digest_output, still_running
from contextstash.safety.sanitize import one_line

MAX_CALL = 160
"""Characters that are shown of a call."""

WAITS = "no result yet"

MAX_CHANGED_LINE = 100
"""Characters that are shown of a line that was changed."""


def call_line(call: Call) -> str:
    """The call: a command as it was run, else the tool with its argument, a path with its end."""
    if call.command is not None:
        return f"ran `{one_line(as_run(call.command).replace('`', chr(39)), MAX_CALL)}`"
    argument = "" if call.argument.startswith("*** Begin Patch") else call.argument
    if argument.startswith("/") and len(argument) > MAX_CALL:
        argument = f"…{argument[1 - MAX_CALL :]}"
    return f"{one_line(call.tool, 40)} {one_line(argument, MAX_CALL)}".strip()


def outcome_line(call: Call, uses: Sequence[FileUse]) -> str:
    """The call with what came of it."""
    made = call_line(call)
    if call.output is None:
        return f"{made}: {'no result is recorded' if call.ended else WAITS}"
    if call.refused:
        return f"{made}: refused by the user"
    changes = [use for use in uses if use.verb not in ("read", "run")]
    silent = call.command is None or not call.output.text.strip()
    if changes and not call.failed and silent and (told := _changed(changes, made)):
        return f"{made}: {told}"
    code = call.output.exit_code
    state = f"exit {code}: " if code else still_running(call.output)
    return f"{made}: {state}{digest_output(call.tool, call.argument, call.output.text, call.is_error)}"


def _changed(uses: Sequence[FileUse], made: str) -> str:
    """The first line that a change adds, or else removes, marked as in a diff; with the file, if the call as it is
    shown does not name it."""
    for use in uses:
        file = "" if use.path.rpartition("/")[2] in made else f"{one_line(use.path, MAX_CALL)}: "
        if use.text is not None:
            return f"{file}wrote {counted(len(use.text.splitlines()), 'line')}"
        for each in use.replaced:
            old, new = each.old.split("\n"), each.new.split("\n")
            added = (f"+ {line.strip()}" for line in new if line.strip() and line not in old)
            removed = (f"- {line.strip()}" for line in old if line.strip() and line not in new)
            if line := next(added, "") or next(removed, ""):
                return file + one_line(line, MAX_CHANGED_LINE)
    return ""
