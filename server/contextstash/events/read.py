"""Reads messages as events, in one pass.

for event in events_of(turns): ...
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from contextstash.events.calls import Call, calls_of
from contextstash.events.commits import commits_of
from contextstash.events.files import uses_of
from contextstash.events.kinds import (
    Asked,
    CarriedOver,
    Committed,
    Decided,
    FileUse,
    Named,
    Planned,
    Quoted,
    Said,
    Used,
)
from contextstash.events.names import MAX_SCANNED, names_of
from contextstash.events.plans import plan_of
from contextstash.events.requests import decisions_of, requests_of, without_host_text
from contextstash.events.turns import Turn


@dataclass(frozen=True, slots=True)
class Ran:
    """A call was made. `uses` are the files that it used."""

    seq: int
    call: Call
    uses: tuple[FileUse, ...] = ()


Event = Asked | Decided | CarriedOver | Said | Used | Ran | Planned | Committed | Named | Quoted

_ARGUMENT_KEY = re.compile(r'"\w{1,60}"\s*:')
_LITERAL = re.compile(r"\"([^\"\n\\]{8,80})\"|(?<!\w)'([^'\n\\]{8,80})'(?!\w)")
_NUMBER = re.compile(r"(?<![\w.:/-])\d{4,8}(?![\w:/-])")
_CODE_SIGNS = re.compile(r"[(){}\[\];=<>]|, |\w\.\w+\(")


def events_of(turns: Sequence[Turn]) -> list[Event]:
    """What happened in these messages, in order."""
    requests, carried = requests_of(turns)
    events: list[Event] = [*requests, *carried]
    for turn in turns:
        events += _of_turn(turn)
    calls = calls_of(turns)
    uses: dict[int, list[FileUse]] = {}
    for call, use in uses_of(calls):
        uses.setdefault(id(call), []).append(use)
    for call in calls:
        events += _of_call(call, uses.get(id(call), []))
        events += _shown_names(call, uses.get(id(call), []))
    return sorted(events, key=lambda event: event.seq)


def _of_turn(turn: Turn) -> Iterator[Event]:
    if turn.role == "assistant":
        said = [text for text in turn.said if text.strip()]
        yield from (Said(turn.seq, text, turn.ends_work) for text in said[-1:])
    if turn.role == "system" or turn.kind == "host":  # the client puts these into every window itself
        return
    if found := _names_in(turn):
        yield Named(turn.seq, tuple(found), by_agent=turn.role == "assistant")


def _names_in(turn: Turn) -> dict[str, None]:
    found: dict[str, None] = {}
    for block, text in zip(turn.blocks, turn.texts, strict=True):
        if block.type == "tool_call":
            found |= names_of(_ARGUMENT_KEY.sub(" ", text))
        elif block.type == "tool_result":
            found |= names_of(text)
        elif block.type != "thinking":
            found |= names_of(without_host_text(text) if turn.role == "user" else text)
    return found


def _of_call(call: Call, uses: Sequence[FileUse]) -> Iterator[Event]:
    yield Ran(call.seq, call, tuple(uses))
    yield from (Used(call.seq, use) for use in uses)
    yield from decisions_of(call)
    yield from commits_of(call)
    if (planned := plan_of(call)) is not None:
        yield planned
    if texts := _quoted(call):
        yield Quoted(call.seq, texts)


def _shown_names(call: Call, uses: Sequence[FileUse]) -> Iterator[Event]:
    """The names that a call shows of one file."""
    paths = {use.path for use in uses}
    if len(paths) == 1 and call.output is not None:
        found = tuple(name for name in names_of(call.output.text) if "/" not in name)
        if found:
            yield Named(call.seq, found, file=paths.pop())


def _quoted(call: Call) -> tuple[str, ...]:
    """The quoted texts and the numbers that the agent wrote into a file or a command."""
    code = call.written[:MAX_SCANNED].replace('\\"', '"')
    quoted = ["".join(pair) for pair in _LITERAL.findall(code)]
    found = [*(f'"{text}"' for text in quoted if _is_wording(text)), *_NUMBER.findall(code)]
    return tuple(dict.fromkeys(found))


def _is_wording(text: str) -> bool:
    """Whether a quoted text is wording, such as a message of an error, and no code between two quotations."""
    return text == text.strip() and " " in text and text[:1].isalnum() and not _CODE_SIGNS.search(text)
