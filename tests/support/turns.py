"""Short ways to write down the turns of a session, and to read the summary that is made of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from enum import StrEnum
from typing import Any

from hypothesis import settings

from contextstash.events.state import State, fold
from contextstash.events.turns import Turn
from contextstash.handoff.summary import Beside, summary_of
from contextstash.messages.base import main_argument
from contextstash_storage.records import Block
from tests.support.effort import examples

laws = settings(max_examples=examples(80))


def quarter(text: str) -> int:
    """Tokens as characters / 4, rounded up."""
    return (len(text) + 3) // 4


class Script:
    """Turns in order, numbered by themselves."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []

    def user(self, *texts: str) -> Script:
        """One message with these texts."""
        blocks = tuple(Block(type="text", size=len(text)) for text in texts)
        self.turns.append(Turn(len(self.turns), "user", blocks, texts))
        return self

    def assistant(self, text: str) -> Script:
        return self._add("assistant", Block(type="text", size=len(text)), text)

    def thinking(self, text: str) -> Script:
        """A message with the assistant's thinking alone."""
        return self._add("assistant", Block(type="thinking", size=len(text)), text)

    def call(
        self, tool: str, arguments: Mapping[str, Any] | str, output: str | None = "", *, is_error: bool = False
    ) -> Script:
        """A tool call and its result; no result if `output` is None."""
        call_id = f"call-{len(self.turns)}"
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        block = Block(type="tool_call", call_id=call_id, tool=tool, argument=main_argument(arguments))
        self._add("assistant", block, text)
        if output is not None:
            result = Block(type="tool_result", call_id=call_id, tool=tool, size=len(output), is_error=is_error)
            self._add("tool", result, output, handle=f"out_{len(self.turns):08d}")
        return self

    def _add(self, role: Any, block: Block, text: str, handle: str | None = None) -> Script:
        handles = {0: handle} if handle else {}
        self.turns.append(Turn(len(self.turns), role, (block,), (text,), handles))
        return self


_STATES: dict[str, State] = {}
"""The state of which each summary was made, so that a test can go on from a summary as a session does."""


class Section(StrEnum):
    """The headings of a summary."""

    TASK = "Task"
    EARLIER = "Earlier summary"
    DONE = "Said at the end of turns, and commits"
    FILES = "Files touched"
    FAILED = "Failed when last run"
    OPEN = "Open items"
    NOTES = "Said between calls since the last turn ended"
    STATE = "Last state"
    NAMES = "Names in use"


def heading(section: str) -> str:
    """The heading line of a section."""
    return f"## {section}"


def extract_summary(
    turns: Sequence[Turn],
    *,
    max_tokens: int,
    count: Callable[[str], int],
    previous: str | None = None,
    history: Sequence[Turn] = (),
    shown: Sequence[Turn] = (),
    words_kept: bool = False,
    max_names: int | None = None,
) -> str:
    """A summary of the turns and of those of which `previous` was made; of `history` alone if that is given. A
    `previous` that is none of ours is what somebody else wrote."""
    before = _STATES.get(previous) if previous else None
    state = fold(history) if history else fold(turns, deepcopy(before))
    # Scripts are numbered from 0: what such a script goes on from is all before it.
    follows = before is not None and bool(turns) and turns[0].seq <= before.seq
    since = before.seq + 1 if before and follows else turns[0].seq if history else 0
    told = summary_of(
        state,
        since=since,
        beside=Beside(words_kept, [text for turn in shown for text in turn.texts]),
        earlier="" if before or history else previous or "",
        max_names=max_names,
        max_tokens=max_tokens,
        count=count,
    )
    text = "\n\n".join(told)
    _STATES[text] = state
    return text


def read_summary(text: str) -> dict[str, list[str]]:
    """The items of a summary by the headings of its sections."""
    found: dict[str, list[str]] = {}
    section: str | None = None
    blank = 0
    for line in text.split("\n"):
        if line.startswith("## "):
            section, blank = line[3:].split(", as of ")[0], 0
        elif section is None:
            continue
        elif not line.strip():
            blank += 1
        elif line.startswith("  ") and found.get(section):
            found[section][-1] += "\n" * (blank + 1) + line[2:]
            blank = 0
        else:
            found.setdefault(section, []).append(line.removeprefix("- ").strip())
            blank = 0
    return found
