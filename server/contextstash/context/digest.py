"""One-line digests of tool outputs, and the placeholders that stand for outputs which left the view."""

from __future__ import annotations

from contextstash.context.oneline import MARKER, clip, one_line
from contextstash.context.output_kinds import HEAD_ROOM, RECOGNIZERS, Seen, describe_ends
from contextstash.context.shell_text import unwrap

SCANNED = 2_000_000
"""Characters of an output that are looked at."""

ARGUMENT_ROOM = 60
"""Longest main argument that a placeholder repeats, in characters."""


def digest_output(tool: str, argument: str, text: str, is_error: bool, max_chars: int = 160) -> str:
    """What this output was, in one line of at most `max_chars` printable characters.

    A test run by its counts and first failure, a crash by its last line, a diff by files and lines, a
    search by matches and files, a file by lines and definitions, and so on; anything else by its first and
    last line.
    """
    printed = unwrap(text if len(text) <= SCANNED else text[: SCANNED // 2] + "\n" + text[-SCANNED // 2 :])
    line = _described(tool, argument, printed.text, is_error) if printed.text.strip() else "no output"
    if printed.exit_code:
        line = f"exit {printed.exit_code}: {line}"
    elif is_error:
        line = f"error: {line}"
    return one_line(line, max_chars)


def _described(tool: str, argument: str, text: str, is_error: bool) -> str:
    seen = Seen(tool, argument, text, _head(text), is_error)
    for recognize in RECOGNIZERS:
        line = recognize(seen)
        if line:
            return line
    return describe_ends(seen)


def _head(text: str) -> str:
    if len(text) <= HEAD_ROOM:
        return text
    head = text[:HEAD_ROOM]
    return head[: head.rfind("\n") + 1] or head


def placeholder(tool: str, argument: str, tokens: int, lines: int, handle: str, digest: str) -> str:
    """What the model sees instead of an archived output: what it was, and how to read it again."""
    call = f"{one_line(tool, 40)} {_short_argument(argument)}".strip()
    size = f"{tokens:,} tokens, {lines:,} line{'' if lines == 1 else 's'}"
    return (
        f"{MARKER}: archived output of {call} ({size}): {_sentence(digest)}"
        f" Unchanged in get_archived_output, handle {handle}; don't repeat the call.]"
    )


def _short_argument(argument: str) -> str:
    """The argument's beginning; of a long path its end, which tells more."""
    line = one_line(argument, 4 * ARGUMENT_ROOM)
    if len(line) > ARGUMENT_ROOM and "/" in line and " " not in line:
        return f"…{line[1 - ARGUMENT_ROOM :]}"
    return clip(line, ARGUMENT_ROOM)


def _sentence(digest: str) -> str:
    line = one_line(digest, 160)
    return line if line.endswith((".", "!", "?", "…")) else f"{line}."


def cleared_placeholder(handle: str) -> str:
    """The bare marker of an output that was cleared, with its handle."""
    return f"{MARKER}: old tool output cleared, kept as {handle}]"
