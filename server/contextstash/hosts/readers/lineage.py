"""Which message each record of a transcript descends from, and so where the conversation was taken back."""

from __future__ import annotations

from typing import Any

MESSAGES = 200
"""How many messages back a prompt's parent is known, whatever it is."""

PASSED = 100
"""How many records that are no messages are remembered."""

TURNS = 400
"""How many prompts back a prompt that takes an earlier one's place is known as such."""

BEGINNING = ""
"""Where a conversation was taken back to that begins anew."""


class Lineage:
    """Parents of records, as far as they may still be asked for. Lives in a reader's state, so it is small.

    `parents` leads from each late message to [the message before it, whether it is words rather than a tool's
    answer]; `passed` from a record that is no message to the message it descends from; `turns` from the parents
    of the prompts so far to their messages.

    A prompt is a rewind if it has the parent of an earlier prompt, or if words stand on the way from the last
    message up to its parent. Other forks are none: the results of parallel calls hang on different parents.
    """

    def __init__(self, state: dict[str, Any]) -> None:
        self._state = state
        self._parents: dict[str, list[Any]] = state.setdefault("parents", {})
        self._passed: dict[str, str] = state.setdefault("passed", {})
        self._turns: dict[str, str] = state.setdefault("turns", {})

    def has_passed(self, uuid: str) -> bool:
        """Whether this is one of the late records that are no messages."""
        return uuid in self._passed

    def passed(self, uuid: str, parent: str | None) -> None:
        """A record that is no message: those below it descend from what it descends from."""
        if (message := self._message(parent)) is not None:
            _put(self._passed, uuid, message, PASSED)

    def recorded(self, uuid: str, parent: str | None, *, words: bool) -> None:
        """A message: a prompt, a reply, or, without `words`, the answer of a tool."""
        if uuid not in self._parents:
            _put(self._parents, uuid, [self._message(parent), words], MESSAGES)
            self._state["last"] = uuid

    def prompted(self, parent: str | None) -> str | None:
        """A prompt is about to be recorded: the message that the conversation was taken back to (empty: to before
        the first prompt), else None."""
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
        _put(self._turns, parent or "", target, TURNS)
        return target if taken_back else None

    def compacted(self) -> None:
        """A summary is about to be recorded: nothing before it can be gone back to."""
        self._parents.clear()
        self._passed.clear()
        self._turns.clear()

    def _message(self, uuid: str | None) -> str | None:
        if uuid is None:
            return None
        return uuid if uuid in self._parents else self._passed.get(uuid)

    def _leaves_words(self, target: str) -> bool:
        """Whether words stand between the last message and this one above it."""
        at: str | None = self._state.get("last")
        words = False
        for _ in range(MESSAGES):
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


def _put(entries: dict[str, Any], key: str, value: Any, most: int) -> None:
    entries.pop(key, None)
    entries[key] = value
    if len(entries) > most:
        del entries[next(iter(entries))]
