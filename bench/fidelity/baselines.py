"""The policies that a window manager has to beat: keep the last messages, or mask old tool outputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Protocol

from .costs import Shown
from .facts import facts_of
from .sessions import Said, tokens_of_text

STUB = "[old tool output pruned]"

NAMES_IN_STUB = 16

_WORD = re.compile(r"(?:[\w.@+-]+/)+[\w.@+-]*\w|\b[A-Za-z_][A-Za-z0-9_]{5,60}\b")
_CODE_LIKE = re.compile(r"[/_\d]|[a-z][A-Z]")

UNMASKED_MESSAGES = 10
"""The newest messages, whose tool outputs are never masked."""


class Run(Protocol):
    """One session under one policy. `view` is called with growing parts of the same session."""

    def view(self, messages: Sequence[Said]) -> Sequence[Shown]: ...


Policy = Callable[[int], Run]
"""A policy: starts a run for a budget in tokens."""


def shown(message: Said) -> Shown:
    """A message as it was recorded."""
    return Shown(message.index, message.tokens, message.facts)


def pinned(messages: Sequence[Said]) -> set[int]:
    """The places of what every baseline keeps: the system messages and the first message of the user."""
    system = {place for place, message in enumerate(messages) if message.role == "system"}
    first = next((place for place, message in enumerate(messages) if message.role == "user"), None)
    return system if first is None else system | {first}


class KeepLast:
    """Keeps as many of the newest messages as fit, at each request."""

    def __init__(self, budget: int) -> None:
        self._budget = budget

    def view(self, messages: Sequence[Said]) -> Sequence[Shown]:
        kept = pinned(messages)
        total = sum(messages[place].tokens for place in kept)
        for place in range(len(messages) - 1, -1, -1):
            if place in kept:
                continue
            total += messages[place].tokens
            if total > self._budget:
                break
            kept.add(place)
        return [shown(messages[place]) for place in sorted(kept)]


class KeepLastHalf:
    """Leaves out the oldest messages down to half of the budget, and only if the view exceeds the budget: the cheapest
    of the simple policies, since the view grows at its end only. Its price is the reference."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._start = 0

    def view(self, messages: Sequence[Said]) -> Sequence[Shown]:
        always = pinned(messages)
        if sum(message.tokens for message in self._kept(messages, always)) > self._budget:
            self._start = self._new_start(messages, always)
        return [shown(message) for message in self._kept(messages, always)]

    def _kept(self, messages: Sequence[Said], always: set[int]) -> list[Said]:
        return [message for place, message in enumerate(messages) if place in always or place >= self._start]

    def _new_start(self, messages: Sequence[Said], always: set[int]) -> int:
        total = sum(messages[place].tokens for place in always)
        start = len(messages)
        while start - 1 > self._start and total + messages[start - 1].tokens <= self._budget / 2:
            start -= 1
            total += messages[start].tokens if start not in always else 0
        while start < len(messages) - 1 and messages[start].role == "tool":
            start += 1
        return start


class Mask:
    """Replaces tool outputs by stubs, the oldest first, until the view fits; then leaves out the oldest messages."""

    def __init__(self, budget: int) -> None:
        self._budget = budget

    def view(self, messages: Sequence[Said]) -> Sequence[Shown]:
        view: list[Shown | None] = [shown(message) for message in messages]
        excess = sum(message.tokens for message in messages) - self._budget
        for place, message in enumerate(messages[:-UNMASKED_MESSAGES]):
            if excess <= 0:
                break
            text = stub(message.text)
            if message.role == "tool" and len(text) < len(message.text):
                masked = Shown((message.index, "stub"), tokens_of_text(text), facts_of(text))
                excess -= message.tokens - masked.tokens
                view[place] = masked
        kept = pinned(messages)
        for place, entry in enumerate(view):
            if excess > 0 and entry is not None and place not in kept:
                excess -= entry.tokens
                view[place] = None
        return [entry for entry in view if entry is not None]


@lru_cache(maxsize=60_000)
def stub(text: str) -> str:
    """What stands for a masked output: a line with its first distinct names."""
    found: dict[str, None] = {}
    for match in _WORD.finditer(text):
        if len(found) < NAMES_IN_STUB and _CODE_LIKE.search(match.group()):
            found[match.group()] = None
    return " ".join((STUB, *found))


BASELINES: dict[str, Policy] = {
    "keep last": KeepLast,
    "keep last, cut to half": KeepLastHalf,
    "mask oldest, 16 names in each stub": Mask,
}
