"""Placeholders: the text that replaces an archived output in the view, and the digest messages about such outputs; and
which outputs are our own: those of our tools, which are never replaced."""

from __future__ import annotations

import re
from collections.abc import Sequence

from contextstash.outputs.limits import OutputLimits, limit
from contextstash.safety.sanitize import MARKER, clip, counted, defused, encodable, one_line, unbracketed
from contextstash_storage.records import Output

MAX_TOOL_CHARACTERS, MAX_ARGUMENT_CHARACTERS, MAX_DIGEST_CHARACTERS = 40, 60, 160
"""Characters of a tool's name, of its main argument, and of the digest in a placeholder, which so stays at about 50
tokens."""

COMPACTION_DIGEST = "[Compaction tool digest]"
"""The first line of such a message: the contract of the preset `rolling`."""

_BEGINNING = f"{MARKER}: archived output of "

_READS_FILE = re.compile(r"read|view|open|cat|file|get_content|show", re.IGNORECASE)
"""Names of tools whose main argument is the path of the file that they show."""


def placeholder(output: Output, digest: str, changed_at: int | None = None) -> str:
    """The placeholder of an archived output: what it was, and how to read it again. If it shows a file that was
    changed since, `changed_at` is the message of the newest change. It stays as it is while the session goes on, so it
    says nothing about how things stand now."""
    since = "" if changed_at is None else f" The file was changed since, at message {changed_at}."
    said = unbracketed(one_line(digest, MAX_DIGEST_CHARACTERS))
    return (
        f"{_BEGINNING}{_call(output)} ({_size(output)}): {said}{'' if said.endswith(('.', '!', '?', '…')) else '.'}"
        f"{since} As it was at message {output.seq}: get_archived_output, handle {output.handle}.]"
    )


def is_placeholder(text: str) -> bool:
    """Whether a result's text is a placeholder, in our own words."""
    return text.startswith(_BEGINNING)


def filled_placeholder(template: str, output: Output) -> str:
    """A placeholder in the words of a preset, with the fields {handle} and {subject}: a file by its path, anything else
    by its call."""
    argument = _short_argument(output.argument)
    is_file = argument and _READS_FILE.search(output.tool) and " " not in argument
    return template.format(handle=output.handle, subject=f"File: {argument}" if is_file else _call(output))


def output_line(output: Output) -> str:
    """An archived output as a line of a list: its handle, its call and its size."""
    failed = ", failed" if output.is_error else ""
    return f"- {output.handle}: {_call(output)} ({output.tokens:,} tokens{failed})"


def digest_message(output: Output, text: str, max_chars: int) -> str:
    """The digest message for one archived output if no model writes it: the head and the tail of the output."""
    excerpt = limit(defused(encodable(text)), OutputLimits(chars=max_chars, cut="head_tail"), len)
    return digest_wording(output, excerpt)


def digest_wording(output: Output, digest: str) -> str:
    """The digest message for one archived output with this digest."""
    return f"{MARKER}: digest of {_call(output)}, archived as {output.handle} ({_size(output)})]\n{defused(digest)}"


def compaction_digest(outputs: Sequence[tuple[Output, str]], max_chars: int) -> str:
    """One digest message for all outputs that a compaction archived; each gets an equal share of `max_chars`."""
    share = max_chars // max(1, len(outputs))
    lines = [f"- {_call(output)} ({output.handle}): {one_line(digest, share)}" for output, digest in outputs]
    return "\n".join((COMPACTION_DIGEST, *lines))


def _size(output: Output) -> str:
    return f"{output.tokens:,} tokens, {counted(output.lines, 'line')}"


def _call(output: Output) -> str:
    """The call in a few words, none of which can close the bracket of the placeholder."""
    return f"{unbracketed(one_line(output.tool, MAX_TOOL_CHARACTERS))} {_short_argument(output.argument)}".strip()


def _short_argument(argument: str) -> str:
    """The argument's beginning; of a long path its end, which names the file."""
    line = unbracketed(one_line(argument, 4 * MAX_ARGUMENT_CHARACTERS))
    if len(line) > MAX_ARGUMENT_CHARACTERS and "/" in line and " " not in line:
        return f"…{line[1 - MAX_ARGUMENT_CHARACTERS :]}"
    return clip(line, MAX_ARGUMENT_CHARACTERS)


# Our own tools' calls and results, by whatever name a client gives them: they quote the session and add nothing.

OWN_TOOLS = (
    "compact_session", "configure_session", "context_status", "delete_session", "estimate_context",
    "get_archived_output", "get_context", "get_summary", "list_sessions", "prune_tool_outputs", "record_messages",
    "recover_context", "restore_outputs", "search_history",
)  # fmt: skip

RETRIEVALS = frozenset({"get_archived_output", "get_summary", "search_history"})
"""Those whose results quote the archive: they are never cut or archived again."""

_COMMAND = re.compile(r"\s*contextstash (?:show|search)\b[^|;&<>\n]*")

_DISTINCT = ("estimate_context", "get_archived_output", "prune_tool_outputs", "restore_outputs")
"""Names that no other server is known to use; the others count only if the name of our server precedes them."""

_SERVER = re.compile(r"(?<![^._/:-])contextstash(?:[._-]?(?:gateway|server|mcp))?[._/:-]*\Z")
"""Clients write `mcp__contextstash__search_history` (Claude Code, Codex), `mcp__plugin_contextstash_contextstash__…`
(its plugins), `contextstash_search_history` (OpenCode), `mcp_contextstash_search_history` (VS Code, Cursor),
`contextstash.search_history` and the like. Nothing else may stand between the server's name and the tool's: our gateway
offers the tools of other servers as `contextstash__github_get_summary`.
"""


def is_own_call(tool: str | None, argument: str | None = None) -> bool:
    """Whether a call is one of our own tools, by its name, or our own command that reads the archive and no other, by
    its main argument. The texts of call and result are not considered: any tool could forge them."""
    return own_tool(tool) is not None or _COMMAND.fullmatch(argument or "") is not None


def is_own_retrieval(tool: str | None, argument: str | None = None) -> bool:
    """The same of calls that read the archive."""
    return own_tool(tool) in RETRIEVALS or _COMMAND.fullmatch(argument or "") is not None


def own_tool(name: str | None) -> str | None:
    """Which of our tools a client means by this name; None if it is another's."""
    lowered = (name or "").lower()
    own = next((each for each in OWN_TOOLS if lowered.endswith(each)), None)
    before = lowered.removesuffix(own or "")
    is_distinct = own in _DISTINCT and (not before or before[-1] in "._/:-")
    return own if is_distinct or _SERVER.search(before) else None
