"""One-line digests of tool outputs, and the placeholders that stand for outputs which left the view."""

from __future__ import annotations

import re
from collections.abc import Sequence

from contextstash.context.text.imitations import defused
from contextstash.context.text.sanitize import MARKER, clip, encodable, one_line, unbracketed
from contextstash.context.tool_outputs.classifiers import HEAD_ROOM, RECOGNIZERS, Seen, describe_ends
from contextstash.context.tool_outputs.limits import OutputLimits, limit
from contextstash.context.tool_outputs.shell_envelope import unwrap
from contextstash_storage.records import Output

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
    size = f"{tokens:,} tokens, {lines:,} line{'' if lines == 1 else 's'}"
    return (
        f"{MARKER}: archived output of {_call(tool, argument)} ({size}): {_sentence(digest)}"
        f" Unchanged in get_archived_output, handle {handle}; don't repeat the call.]"
    )


def _call(tool: str, argument: str) -> str:
    """A call in a few words, none of which can end the placeholder that they stand in."""
    return f"{_short_tool(tool)} {_short_argument(argument)}".strip()


def _short_tool(tool: str) -> str:
    return unbracketed(one_line(tool, 40))


def _short_argument(argument: str) -> str:
    """The argument's beginning; of a long path its end, which tells more."""
    line = unbracketed(one_line(argument, 4 * ARGUMENT_ROOM))
    if len(line) > ARGUMENT_ROOM and "/" in line and " " not in line:
        return f"…{line[1 - ARGUMENT_ROOM :]}"
    return clip(line, ARGUMENT_ROOM)


def _sentence(digest: str) -> str:
    line = unbracketed(one_line(digest, 160))
    return line if line.endswith((".", "!", "?", "…")) else f"{line}."


def filled_placeholder(template: str, output: Output, digest: str) -> str:
    """A placeholder of the user's own words. `template` names the fields of `settings.PLACEHOLDER_FIELDS`."""
    argument = _short_argument(output.argument)
    return template.format(
        handle=output.handle,
        tool=_short_tool(output.tool),
        argument=argument,
        subject=_subject(output),
        tokens=f"{output.tokens:,}",
        lines=f"{output.lines:,}",
        digest=unbracketed(one_line(digest, 160)),
    )


def _subject(output: Output) -> str:
    """What an output shows, in a few words: a file by its path, anything else by its call."""
    argument = _short_argument(output.argument)
    if argument and _READS_FILE.search(output.tool) and " " not in argument:
        return f"File: {argument}"
    return _call(output.tool, output.argument)


_READS_FILE = re.compile(r"read|view|open|cat|file|get_content|show", re.IGNORECASE)


def output_line(output: Output) -> str:
    """An output in a list of what can be read back."""
    call = _call(output.tool, output.argument)
    failed = ", failed" if output.is_error else ""
    return f"- {output.handle}: {call} ({output.tokens:,} tokens{failed})"


def digest_message(output: Output, text: str, max_chars: int) -> str:
    """A digest message for one archived output made without a model: its head and tail, what it was and its handle."""
    shown = limit(defused(encodable(text)), OutputLimits(chars=max_chars, cut="head_tail"), len).text
    return digest_wording(output, shown)


def digest_wording(output: Output, said: str) -> str:
    """The digest message that says this of an archived output."""
    call = _call(output.tool, output.argument)
    size = f"{output.tokens:,} tokens, {output.lines:,} line{'' if output.lines == 1 else 's'}"
    return f"{MARKER}: digest of {call}, archived as {output.handle} ({size})]\n{defused(said)}"


COMPACTION_DIGEST = "[Compaction tool digest]"


def compaction_digest(outputs: Sequence[tuple[Output, str]], max_chars: int) -> str:
    """One digest message for several outputs archived by a compaction; each gets an equal share of `max_chars`."""
    share = max(80, max_chars // max(1, len(outputs)))
    lines = [
        f"- {_call(output.tool, output.argument)} ({output.handle}): {one_line(said, share)}"
        for output, said in outputs
    ]
    return "\n".join((COMPACTION_DIGEST, *lines))
