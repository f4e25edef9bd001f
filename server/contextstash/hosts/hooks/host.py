"""The properties of a client's hooks: events, shapes of tool outputs, and the way to replace an output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BUSY_SECONDS = 2.0
"""How long a hook waits while another process writes to the database, before it gives up: the client waits for the hook
after every tool call."""


def _is_in_same_folder(transcript: Path, current: Path, folder: str | None) -> bool:
    return transcript.parent == current.parent


@dataclass(frozen=True)
class HookHost:
    """A client with hooks. Its module must import nothing heavy: it is loaded after every tool call of the client.

    Events: `after_tool` and `before_compaction` are the client's names for these two; `read_to_its_end` are the events
    at which its transcript is read. `after_compaction` is the event at which a compacted session can be given context,
    if that is not the start of a session. `only_manual_is_sure` is true if the client also fires `before_compaction`
    when it then compacts nothing, except if the user asked for it.

    Outputs: `texts_of` returns the texts of a tool's response that the model would see, in order, or none if the
    response has an unknown shape; `replacement` returns the hook's response that shows other texts instead.
    `persisted_output` returns the path of the file in which the client keeps the whole of a response's first text.
    `limits` are the characters of an output by tool, `default_limit` those of any other tool, if the user's settings
    limit no outputs. `preview_limit` are the characters, and bytes, that the client itself shows of an output that it
    keeps in a file. `cut_at_end` are the tools whose lines the client numbers after the hook: a cut in the middle would
    shift the numbers of all lines behind it.

    Hand-offs: `context_limit` are the characters that one hook may add to the window, None if there is no limit.

    Files: `own_folders` returns the folders, given the user's home, in which the client keeps its transcripts and such
    outputs: a hook reads no file outside of them. `sub_agents` returns the transcripts of a session's sub-agents,
    and `compacted`, given the session's transcript and these, the one that was just compacted, None if that is unclear.
    `is_of_same_project` returns whether a transcript is of the same project as the current one, given the project's
    folder.
    """

    name: str
    after_tool: str
    before_compaction: str
    read_to_its_end: tuple[str, ...]
    mcp_prefix: str
    texts_of: Callable[[str, Any], list[str]]
    replacement: Callable[[str, Any, list[str]], dict[str, Any]]
    own_folders: Callable[[Path], Sequence[Path]]
    after_compaction: str | None = None
    context_limit: int | None = None
    only_manual_is_sure: bool = False
    # About 2,500 tokens at 4 characters each. The rest stays retrievable.
    default_limit: int = 10_000
    limits: Mapping[str, int] = field(default_factory=dict)
    preview_limit: int | None = None
    cut_at_end: frozenset[str] = frozenset()
    persisted_output: Callable[[Any], str | None] = lambda _: None
    sub_agents: Callable[[Path], Sequence[Path]] = lambda _: ()
    compacted: Callable[[Path, Sequence[Path]], Path | None] = lambda transcript, _: transcript
    is_of_same_project: Callable[[Path, Path, str | None], bool] = _is_in_same_folder

    def limit(self, tool: str) -> int:
        """Characters of an output of this tool up to which the model sees the whole output."""
        return self.limits.get(tool, self.default_limit)
