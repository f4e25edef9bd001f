"""The share of its model's window that each host uses: the stash is given `HOST_WINDOWS` by whatever opens it.

A host that writes the window into its transcript needs no entry: its reader passes it on (`TranscriptSession.window`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

CLAUDE_CODE_WINDOW = 200_000
"""Tokens that Claude Code uses of a larger window unless the model's is listed as native or the user selects it."""

CLAUDE_CODE_RESERVE = 33_000
"""Tokens below its window at which Claude Code 2.1 compacts: 20,000 for the reply and 13,000 to spare. Measured: with a
window of 100,000 it compacts at 62,000 to 67,000. If a version keeps more or less, it compacts that much earlier or
later than it is set to, and than the status line says."""

CLAUDE_CODE_VARIABLE = "CLAUDE_CODE_AUTO_COMPACT_WINDOW"
"""The environment variable that sets Claude Code's window for one process, in tokens."""

_NATIVE = re.compile(r"claude-(?:opus-(?:4-[7-9](?!\d)|[5-9])|sonnet-[5-9]|fable-|mythos-)")
"""Models whose whole window Claude Code 2.1.197 uses by its own table (Opus 4.7 and 4.8, Sonnet 5, Fable 5, Mythos 5),
and newer ones of these families, which are taken to be listed by newer versions. It does so at the vendor's own
address, at which `run` lets it think it is; at another one it uses 200,000 tokens, and the session's level is then
shown too low until its `window` is set."""

LARGE_WINDOW_SUFFIX = "[1m]"
"""Claude Code's own ending of a model's name that selects the window of 1,000,000 tokens, as in `sonnet[1m]`."""


def claude_code_window(model: str | None, reported_tokens: int) -> int | None:
    """Claude Code's window in tokens; None for all that the model has: if it is used natively, if the model's name
    selects the large window, or if more tokens than the default window holds were reported, which shows that the large
    one is in use."""
    name = model or ""
    if LARGE_WINDOW_SUFFIX in name or _NATIVE.search(name) or reported_tokens > CLAUDE_CODE_WINDOW:
        return None
    return CLAUDE_CODE_WINDOW


HOST_WINDOWS: Mapping[str, Callable[[str | None, int], int | None]] = {"claude-code": claude_code_window}
"""By the name of the agent that sessions are recorded under. A host that is missing uses its model's whole window."""
