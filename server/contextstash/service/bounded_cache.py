"""A cache of limited size, so that the memory of a server that runs for months does not grow.

Its keys are names that callers choose: sessions, agents and models, hence any number of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """The values of the last `limit` keys that were set; the oldest is removed first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: OrderedDict[Key, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: Key) -> Value | None:
        """The key's value; None if it was never set or has been removed."""
        return self._known.get(key)

    def last(self, matches: Callable[[Key], bool]) -> Value | None:
        """The value that was set last of the keys that match; None if none does."""
        return next((self._known[key] for key in reversed(self._known) if matches(key)), None)

    def set(self, key: Key, value: Value) -> Value:
        """Store the value in place of an earlier one, and return it."""
        self._known.pop(key, None)
        self._known[key] = value
        while len(self._known) > self._limit:
            self._known.popitem(last=False)
        return value

    def __contains__(self, key: Key) -> bool:
        return key in self._known

    def newest_first(self) -> Iterator[Value]:
        """The values, the one that was set last first."""
        return reversed(self._known.values())

    def pop(self, key: Key) -> Value | None:
        """Remove the key's value and return it; None if there is none."""
        return self._known.pop(key, None)

    def clear(self) -> list[Value]:
        """Remove all keys, and return their values."""
        values = list(self._known.values())
        self._known.clear()
        return values
