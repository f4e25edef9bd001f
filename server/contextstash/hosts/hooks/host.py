"""What a client's hooks are like: its events, the shape of its tools' outputs, and how one is replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class HookHost:
    """A client with hooks.

    `after_tool` and `before_compaction` name its events for that, `read_to_its_end` those at which its transcript is
    read; `after_compaction` is the event at which a compacted session can be told something, if that is not its
    start; `only_manual_is_sure` if it fires `before_compaction` by itself though it may not compact. `texts_of` are
    the texts of a tool's response that the model would see, in order, none of one whose shape we don't know;
    `replacement` is the answer that shows it others. `limits` are characters by tool, `default_limit` those of any
    other, if the user's settings say nothing.
    """

    name: str
    after_tool: str
    before_compaction: str
    read_to_its_end: tuple[str, ...]
    mcp_prefix: str
    texts_of: Callable[[str, Any], list[str]]
    replacement: Callable[[str, Any, list[str]], dict[str, Any]]
    after_compaction: str | None = None
    only_manual_is_sure: bool = False
    default_limit: int = 10_000
    limits: Mapping[str, int] = field(default_factory=dict)

    def limit(self, tool: str) -> int:
        """Characters of an output of this tool that the model sees whole."""
        return self.limits.get(tool, self.default_limit)
