"""What each provider demands of the order of a list, and which tool result answers which call.

Repairs follow from the table; where a list may be cut follows from the pairs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

Place = tuple[int, int]
"""The index of a message and the index of a part in it."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a provider for a whole list; those for a single message are in its codec."""

    joins: Literal["all", "open", "none"]
    """Which neighbours of one role belong together: all; the model's while their calls have no results; none."""
    results_next: bool
    """Whether the results of a reply's calls come directly behind it, or may come anywhere later."""
    texts_beside_results: bool = False
    """Whether results that are complete may stand among the user's own parts; otherwise they come first."""
    one_call_an_id: bool = True
    """Whether a reply may not hold two calls of one id."""
    user_first: bool = False
    """Whether the list must begin with the user."""
    early_results: bool = False
    """Whether hosts of this format write a result before its call: Claude Code does so as soon as the tool ends, while
    the reply still streams in."""


RULES: Mapping[str, Rules] = MappingProxyType(
    {
        # "Tool result blocks must immediately follow their corresponding tool use blocks", and come first in their
        # message: https://docs.claude.com/en/docs/agents-and-tools/tool-use/implement-tool-use. Roles alternate; the
        # first is the user's: https://docs.claude.com/en/api/messages
        "anthropic": Rules("all", results_next=True, user_first=True, early_results=True),
        # "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'"
        # (the API's error): https://platform.openai.com/docs/guides/function-calling
        "openai-chat": Rules("none", results_next=True),
        # "No tool output found for function call": an output may follow later, but each call needs one.
        # https://platform.openai.com/docs/api-reference/responses/create
        "openai-responses": Rules("open", results_next=False),
        # "the number of function response parts is equal to the number of function call parts of the function call
        # turn" (the API's error). Neighbours of one role are accepted: google/adk-go#1218; texts next to responses too,
        # by Vertex AI before them only: Prism-Shadow/agenthub#189. https://ai.google.dev/gemini-api/docs/function-calling
        "gemini": Rules("open", results_next=True, texts_beside_results=True, one_call_an_id=False, user_first=True),
    }
)


class Event(NamedTuple):
    """A call, or a result. `keys` are what a result may name its call by, the best first. `turn` counts what the user
    said before it. Among open calls of one key, the newest batch is answered first, and its calls in their order."""

    place: Place
    keys: tuple[str, ...]
    is_call: bool
    turn: int
    batch: int


def calls_of_results(events: Iterable[Event], *, one_open: bool = False) -> dict[Place, Place]:
    """By the place of each result, the place of the call that it answers. Results without a call are not in it.

    A result answers the nearest open call before it, so that an id may be used again. If there is none, it answers the
    next call after it in the same turn that nothing else answers. With `one_open`, a call closes an open one of its
    key. `events` are in the order of the list."""
    events = list(events)
    waiting = _Waiting(one_open)
    early = []
    for event in events:
        if event.is_call:
            waiting.add(event)
        elif not waiting.answer(event):
            early.append(event)
    _answer_early(early, events, waiting.answered)
    return waiting.answered


class _Waiting:
    """Open calls by their keys, in batches."""

    def __init__(self, one_open: bool) -> None:
        self._one_open = one_open
        self._open: dict[str, list[deque[Event]]] = {}
        self._taken: set[Place] = set()
        self.answered: dict[Place, Place] = {}

    def add(self, call: Event) -> None:
        for key in call.keys if self._one_open else ():
            self._open.pop(key, None)
        for key in call.keys:
            batches = self._open.setdefault(key, [])
            if batches and batches[-1] and batches[-1][-1].batch == call.batch:
                batches[-1].append(call)
            else:
                batches.append(deque([call]))

    def answer(self, result: Event) -> bool:
        """Pair the result with its call, if one is open."""
        for key in result.keys:
            if call := self._next(key):
                self.answered[result.place] = call.place
                self._taken.add(call.place)
                return True
        return False

    def _next(self, key: str) -> Event | None:
        batches = self._open.get(key, [])
        while batches:
            while batches[-1] and batches[-1][0].place in self._taken:
                batches[-1].popleft()
            if batches[-1]:
                return batches[-1][0]
            batches.pop()
        return None


def _answer_early(early: list[Event], events: Iterable[Event], answered: dict[Place, Place]) -> None:
    taken = set(answered.values())
    left: dict[str, deque[Event]] = {}
    for call in _unanswered(events, taken) if early else ():
        left.setdefault(call.keys[0], deque()).append(call)
    for result in early:
        following = left.get(result.keys[0], deque())
        while following and (following[0].place < result.place or following[0].turn < result.turn):
            following.popleft()
        if following and following[0].turn == result.turn:
            answered[result.place] = following.popleft().place


def _unanswered(events: Iterable[Event], taken: set[Place]) -> Iterator[Event]:
    return (event for event in events if event.is_call and event.place not in taken)
