"""Continues a session in another client: its command, with the hand-off as its first message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

MAX_ARGUMENT_BYTES = 120_000
"""Of one argument of a program: Linux takes 131,072."""


@dataclass(frozen=True)
class Continuing:
    """A client that can be started with a first message. `installed_as` is its name for `contextstash install`."""

    installed_as: str
    command: Callable[[str, str], tuple[str, ...]]


CODEX_WAITS = "mcp_optional_startup_grace_ms=0"
"""Codex (0.169, as it ran) then sends its first request when each MCP server has started, or has failed to within its
own time limit. By default it waits for a second, in which a server in Python may not have started."""

CONTINUING: dict[str, Continuing] = {
    "claude": Continuing("claude-code", lambda program, message: (program, message)),
    "codex": Continuing("codex", lambda program, message: (program, "-c", CODEX_WAITS, message)),
    "gemini": Continuing("gemini", lambda program, message: (program, "--prompt-interactive", message)),
}
"""By the name of the program. Each takes a first message and stays interactive: Claude Code and Codex as an argument,
Gemini CLI as an option. Claude Code (2.1.197) has no setting that makes an interactive session wait for its servers:
MCP_CONNECTION_NONBLOCKING and `alwaysLoad` had no effect there. Sources: the clients' own --help."""


def first_message(hand_off: str, session_id: str) -> str:
    """The first message for the client: the hand-off, and how to read the rest of the session."""
    return (
        f"{hand_off}\n\n"
        f"This continues session {session_id} of another client; nothing of it is in your own history. The tools of"
        " contextstash may connect only after your first reply has begun. With them,"
        f' search_history with session_id "{session_id}" finds anything that was said or done in it,'
        " and get_archived_output returns an output by its handle. Say in two sentences where the work stands, and go"
        " on with what is open."
    )
