"""Which tool result answers which call: the one rule from which repairs and cuts follow."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

Place = tuple[int, int]
"""The index of a message and the index of a part in it."""


class Event(NamedTuple):
    """A call with this id, or a result of it. `turn` counts what the user said before it."""

    place: Place
    call_id: str
    is_call: bool
    turn: int


def calls_of_results(events: Iterable[Event]) -> dict[Place, Place]:
    """By the place of each result, the place of the call that it answers. Results without a call are not in it.

    A result answers the nearest open call with its id before it, so that an id may be used again. If there is none, it
    answers the next call after it in the same turn that nothing else answers: Claude Code writes a result as soon as
    the tool ends, but the reply as it streams in. `events` are in the order of the list."""
    answered: dict[Place, Place] = {}
    open_calls: dict[str, list[tuple[Place, int]]] = {}
    early: list[Event] = []
    for event in events:
        waiting = open_calls.setdefault(event.call_id, [])
        if event.is_call:
            waiting.append((event.place, event.turn))
        elif waiting:
            answered[event.place] = waiting.pop()[0]
        else:
            early.append(event)
    for event in early:
        waiting = open_calls[event.call_id]
        following = bisect_right(waiting, (event.place, event.turn))
        if following < len(waiting) and waiting[following][1] == event.turn:
            answered[event.place] = waiting.pop(following)[0]
    return answered
