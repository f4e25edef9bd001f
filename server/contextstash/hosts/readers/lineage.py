"""Which message each record of a transcript descends from, to find where the conversation was rewound."""

from __future__ import annotations

from typing import Any

MAX_MESSAGES = 200
"""How many of the last messages are remembered with their parents. This limit and the next two bound the reader's
state, which is stored with each reading."""

MAX_PASSED = 100
"""How many of the last records that are not messages are remembered."""

MAX_TURNS = 400
"""How many of the last prompts are remembered: a later prompt with the same parent replaces one of them."""

BEGINNING = ""
"""The target of a rewind to before the first message."""


class Lineage:
    """Parents of the latest records. They are part of a reader's state, so their number is limited.

    `parents` maps each recent message to [the message before it, whether it is a prompt or reply and not a tool's
    result]; `passed` maps a record that is not a message to the message that it descends from; `turns` maps the parents
    of the prompts so far to the messages that they descend from.

    A prompt is a rewind if it has the parent of an earlier prompt, or if a prompt or reply is on the path from the last
    message up to its parent. Other forks are not rewinds: the results of parallel calls have different parents.
    """

    def __init__(self, state: dict[str, Any]) -> None:
        self._state = state
        self._parents: dict[str, list[Any]] = state.setdefault("parents", {})
        self._passed: dict[str, str] = state.setdefault("passed", {})
        self._turns: dict[str, str] = state.setdefault("turns", {})

    def has_passed(self, uuid: str) -> bool:
        """Whether this is one of the last records that are not messages."""
        return uuid in self._passed

    def passed(self, uuid: str, parent: str | None) -> None:
        """Note a record that is not a message: its children descend from what it descends from."""
        if (message := self._message(parent)) is not None:
            _put(self._passed, uuid, message, MAX_PASSED)

    def recorded(self, uuid: str, parent: str | None, *, words: bool) -> None:
        """Note a message: a prompt, a reply, or, without `words`, the result of a tool."""
        if uuid not in self._parents:
            _put(self._parents, uuid, [self._message(parent), words], MAX_MESSAGES)
            self._state["last"] = uuid

    def prompted(self, parent: str | None) -> str | None:
        """Note a prompt before it is recorded. Returns the message that it rewinds the conversation to (empty: to
        before the first prompt), None if it is not a rewind."""
        last = self._state.get("last")
        before = self._turns.get(parent or "")
        target = before if before is not None else self._message(parent)
        if target is None and last is None:
            target = BEGINNING
        if target is None:
            return None
        taken_back = last is not None and target != last and (before is not None or self._leaves_words(target))
        if taken_back:
            self._forget_turns_after(target)
        _put(self._turns, parent or "", target, MAX_TURNS)
        return target if taken_back else None

    def compacted(self) -> None:
        """Note a summary before it is recorded: the conversation cannot be rewound to a message before it."""
        self._parents.clear()
        self._passed.clear()
        self._turns.clear()

    def _message(self, uuid: str | None) -> str | None:
        if uuid is None:
            return None
        return uuid if uuid in self._parents else self._passed.get(uuid)

    def _leaves_words(self, target: str) -> bool:
        """Whether a prompt or reply is between this message and the last one, which descends from it."""
        at: str | None = self._state.get("last")
        words = False
        for _ in range(MAX_MESSAGES):
            if at is None or at == target or at not in self._parents:
                break
            words = words or bool(self._parents[at][1])
            at = self._parents[at][0]
        return words and at == target

    def _forget_turns_after(self, target: str) -> None:
        """The prompts after this message were abandoned."""
        if target in self._turns.values():
            for parent, found in reversed(list(self._turns.items())):
                if found == target:
                    break
                del self._turns[parent]


def _put(entries: dict[str, Any], key: str, value: Any, limit: int) -> None:
    entries.pop(key, None)
    entries[key] = value
    if len(entries) > limit:
        del entries[next(iter(entries))]
