"""Finds the transcript of a session that Claude Code has just compacted: the main agent's, or that of a sub-agent.

Its compaction hooks run for sub-agents too, with the session and the transcript of the main agent and without a word
about the sub-agent (claude-code#91910), and before the compaction is in any transcript (seen in 2.1.197). What remains
is who can have been compacted: an agent that waits for a tool, or for its own sub-agent, sends no request.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contextstash.files.regular_files import open_regular
from contextstash.hosts.readers.documents import count_of, objects, part
from contextstash.hosts.readers.transcript import split_lines

MAX_TAIL_BYTES = 4 * 1024 * 1024
"""The end of a transcript that is read. It holds the newest turn, with calls that run side by side."""

MAX_IDLE_SECONDS = 600.0
"""How long ago a sub-agent that was just compacted can have written its last message: the time of one summary;
a sub-agent that was stopped without a word is not taken for one that runs, once this time has passed."""


@dataclass(frozen=True)
class Tail:
    """The newest turn of a transcript. `waits` is true if a call has no result yet; `asks` if the next message is the
    model's; `tokens` is the size of the newest request, as reported."""

    waits: bool
    asks: bool
    tokens: int


def compacted_transcript(transcript: Path, sub_agents: Sequence[Path]) -> Path | None:
    """The transcript that was compacted; None if it is one of several sub-agents' and unclear whose."""
    main = _tail(transcript, is_sub_agent=False)
    now = time.time()
    running: dict[Path, Tail] = {}
    for path in sub_agents:
        if now - path.stat().st_mtime <= MAX_IDLE_SECONDS:
            tail = _tail(path, is_sub_agent=True)
            if tail.asks and not tail.waits:
                running[path] = tail
    if not main.waits and all(tail.tokens < main.tokens for tail in running.values()):
        return transcript
    return next(iter(running)) if len(running) == 1 else None


def _tail(path: Path, *, is_sub_agent: bool) -> Tail:
    with open_regular(path) as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - MAX_TAIL_BYTES))
        lines, _ = split_lines(file.read(MAX_TAIL_BYTES), at_end=True)
    records = [line.record for line in lines if bool(line.record.get("isSidechain")) == is_sub_agent]
    messages = [record for record in records if record.get("type") in ("user", "assistant")]
    return Tail(_waits(messages), bool(messages) and messages[-1]["type"] == "user", _tokens(messages))


def _waits(messages: Sequence[dict[str, Any]]) -> bool:
    """Whether a call of the newest reply has no result."""
    newest = next((place for place in range(len(messages) - 1, -1, -1) if _is_prompt(messages[place])), -1)
    blocks = [block for message in messages[newest + 1 :] for block in _blocks(message)]
    called = {block.get("id") for block in blocks if block.get("type") == "tool_use"}
    return bool(called - {block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"})


def _is_prompt(message: dict[str, Any]) -> bool:
    """Whether the user wrote this, or the client for the user: an older call that was interrupted has no result."""
    return message["type"] == "user" and not any(block.get("type") == "tool_result" for block in _blocks(message))


def _blocks(message: dict[str, Any]) -> Iterable[dict[str, Any]]:
    return objects(part(message, "message").get("content"))


def _tokens(messages: Sequence[dict[str, Any]]) -> int:
    for message in reversed(messages):
        if usage := part(message, "message", "usage"):
            names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
            return sum(count_of(usage, name) for name in names)
    return 0
