"""Messages of the service in the words of the command line: commands and options instead of tools and arguments."""

from __future__ import annotations

import re

COMMANDS = {
    "prune_tool_outputs": "contextstash prune",
    "compact_session": "contextstash compact",
    "restore_outputs": "contextstash restore",
    "search_history": "contextstash search",
    "get_archived_output": "contextstash show",
    "get_summary": "contextstash show",
    "list_sessions": "contextstash sessions",
    "context_status": "contextstash status",
    "delete_session": "contextstash delete",
    "estimate_context": "contextstash status",
    "record_messages": "contextstash import",
}

OPTIONS = {
    "keep_last": "--keep-last",
    "protect_tokens": "--protect-tokens",
    "minimum_tokens": "--minimum-tokens",
    "dry_run": "--dry-run",
    "session_id": "--session",
}

_CALL = re.compile(rf"\b([Cc])all (?:the tool )?(?=(?:{'|'.join(COMMANDS)})\b)")
_TOOL = re.compile(rf"\b(?:{'|'.join(COMMANDS)})\b")
_ARGUMENT = re.compile(rf"\b({'|'.join(OPTIONS)})\b(?:=(?=\w))?")


def in_commands(text: str) -> str:
    """A message that names tools and arguments, with the commands and options that do the same."""
    text = _CALL.sub(lambda found: "Run " if found[1] == "C" else "run ", text)
    text = _TOOL.sub(lambda found: COMMANDS[found[0]], text)
    return _ARGUMENT.sub(lambda found: OPTIONS[found[1]] + (" " if found[0].endswith("=") else ""), text)
