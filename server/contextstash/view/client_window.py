"""The part of a client's own message list that stays in its window after a compaction by us, below our hand-off.

    tail = plan_tail(messages, 8_000, count, pinned=frozenset())
    messages[tail.first:], with the results of the calls in `tail.shortened` as placeholders

Valid for every provider: no result stands without its call, and what the model has not replied to yet stays whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from contextstash.outputs.placeholders import is_placeholder

WHOLE_SHARE = 0.5
"""The share of the room in which results stay whole; of what is older they become placeholders. As a compaction of our
own view keeps it (compaction_plan.py)."""

PLACEHOLDER_TOKENS = 60
"""About what a placeholder takes; a smaller result stays."""


@dataclass(frozen=True)
class ClientCall:
    """A tool call: the client's id of it, the tool, and what it was given."""

    id: str
    tool: str
    input: object


@dataclass(frozen=True)
class ClientResult:
    """The result of the call `id` as the model sees it."""

    id: str
    text: str
    is_error: bool = False


@dataclass(frozen=True)
class ClientMessage:
    """A message of a client's list. `id` is the client's own, which its transcript has too; empty if it has none."""

    id: str
    role: str
    text: str
    calls: tuple[ClientCall, ...] = ()
    results: tuple[ClientResult, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it can be shown: a message of reasoning alone."""
        return not (self.text or self.calls or self.results)


@dataclass(frozen=True)
class Tail:
    """What stays of a list: the messages from `first` on, with the results of `shortened` as placeholders."""

    first: int
    shortened: frozenset[str]


def plan_tail(
    messages: Sequence[ClientMessage], room: int, count: Callable[[str], int], pinned: Collection[str]
) -> Tail:
    """The newest messages that take at most `room` tokens, without the first one, which the hand-off tells. Those
    without a reply stay whatever they take, and results of the calls `pinned` stay whole."""
    unanswered = _unanswered(messages)
    taken, whole, shortened, first = 0, 0, set[str](), len(messages)
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        own = count(message.text) + sum(count(f"{call.tool} {call.input}") for call in message.calls)
        sizes = {result.id: count(result.text) for result in message.results}
        whole += own + sum(sizes.values())
        if place < unanswered and whole > room * WHOLE_SHARE:
            short = {
                result.id
                for result in message.results
                if sizes[result.id] > PLACEHOLDER_TOKENS and result.id not in pinned and not is_placeholder(result.text)
            }
            sizes.update(dict.fromkeys(short, PLACEHOLDER_TOKENS))
            shortened |= short
        taken += own + sum(sizes.values())
        if taken > room and place < unanswered:
            break
        first = place
    first = _safe_from(messages, min(max(first, 1), unanswered))
    return Tail(first, frozenset(shortened & {result.id for each in messages[first:] for result in each.results}))


def unanswered_results(messages: Sequence[ClientMessage]) -> frozenset[str]:
    """The calls whose results the model has not replied to yet."""
    return frozenset(result.id for message in messages[_unanswered(messages) :] for result in message.results)


def _unanswered(messages: Sequence[ClientMessage]) -> int:
    """Where the newest step begins that the model has not replied to: its results, with their calls."""
    place = len(messages)
    while place and messages[place - 1].role == "user":
        place -= 1
    return _safe_from(messages, place, later=False)


def _safe_from(messages: Sequence[ClientMessage], first: int, *, later: bool = True) -> int:
    """The next position from which on every result has its call; with `later` false the last one before."""
    called = {call.id: place for place, message in enumerate(messages) for call in message.calls}
    oldest = [
        min((called.get(result.id, -1) for result in message.results), default=place)
        for place, message in enumerate(messages)
    ]
    needed = list(accumulate(reversed(oldest), min, initial=len(messages)))[::-1]
    safe = [place for place in range(len(messages) + 1) if needed[place] >= place]
    found = [place for place in safe if (place >= first if later else place <= first)]
    return (min(found) if later else max(found)) if found else len(messages)


def total_of(message: ClientMessage, count: Callable[[str], int]) -> int:
    """The tokens of a message without what a provider adds."""
    calls = sum(count(f"{call.tool} {call.input}") for call in message.calls)
    return count(message.text) + calls + sum(count(result.text) for result in message.results)


def window_of(
    messages: Sequence[ClientMessage], ours: Sequence[str], stays: Collection[int], replaced: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The window as a client's plugin applies it to its own list: our texts, then the places of the messages that stay,
    with the texts that replace results by their calls. A result whose call does not stay leaves with it."""
    window: list[dict[str, Any]] = [{"role": "user", "text": text} for text in ours]
    called: set[str] = set()
    for place in sorted(stays):
        message = messages[place]
        if message.is_empty or any(result.id not in called for result in message.results):
            continue
        called |= {call.id for call in message.calls}
        results = {
            each.id: replaced[each.id] for each in message.results if replaced.get(each.id, each.text) != each.text
        }
        window.append({"at": place, "results": results} if results else {"at": place})
    return window


def applied(messages: Sequence[ClientMessage], window: Sequence[Mapping[str, Any]]) -> list[ClientMessage]:
    """The list as it is once the window is applied to it."""
    shown: list[ClientMessage] = []
    for part in window:
        if "at" not in part:
            shown.append(ClientMessage("", part["role"], part["text"]))
            continue
        message, texts = messages[part["at"]], part.get("results", {})
        shown.append(
            replace(
                message, results=tuple(replace(each, text=texts.get(each.id, each.text)) for each in message.results)
            )
        )
    return shown
