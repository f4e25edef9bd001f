"""Digests: one line that says what a tool output was."""

from __future__ import annotations

from contextstash.outputs.classifiers import CLASSIFIERS, MAX_HEAD_CHARACTERS, ToolOutput, describe_ends
from contextstash.outputs.shell_envelope import Printed, unwrap
from contextstash.safety.sanitize import one_line

MAX_SCANNED = 2_000_000
"""Characters of an output that are read, half of them from each end; it bounds the time."""


def digest_output(tool: str, argument: str, text: str, is_error: bool, max_chars: int = 160) -> str:
    """Describes an output in one line of at most `max_chars` printable characters.

    A test run is described by its counts and first failure, a crash by its last line, a diff by files and lines, a
    search by matches and files, a file by lines and definitions, and so on; anything else by its first and last line.
    """
    printed = unwrap(text if len(text) <= MAX_SCANNED else text[: MAX_SCANNED // 2] + "\n" + text[-MAX_SCANNED // 2 :])
    line = _described(tool, argument, printed.text, is_error) if printed.text.strip() else "no output"
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


def _described(tool: str, argument: str, text: str, is_error: bool) -> str:
    output = ToolOutput(tool, argument, text, _head(text), is_error)
    for describe in CLASSIFIERS:
        line = describe(output)
        if line:
            return line
    return describe_ends(output)


def _head(text: str) -> str:
    if len(text) <= MAX_HEAD_CHARACTERS:
        return text
    head = text[:MAX_HEAD_CHARACTERS]
    return head[: head.rfind("\n") + 1] or head
