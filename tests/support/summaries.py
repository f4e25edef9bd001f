"""Summaries of scripted sessions, and how a test reads their sections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

from contextstash.events.state import State, fold
from contextstash.events.turns import Turn
from contextstash.handoff.summary import Beside, summary_of

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
    state = fold(history) if history else fold(turns, before)
    # Scripts are numbered from 0: what such a script goes on from is all before it.
    follows = before is not None and bool(turns) and turns[0].seq <= before.seq
    since = before.seq + 1 if before and follows else turns[0].seq if history else 0
    text = summary_of(
        state,
        since=since,
        beside=Beside.of_turns(shown, words=words_kept),
        earlier="" if before or history else previous or "",
        max_names=max_names,
        max_tokens=max_tokens,
        count=count,
    )
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
