"""A cache of limited size, so that the memory of a server that runs for months does not grow.

Its keys are names that callers choose: sessions, agents and models, hence any number of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(OrderedDict[Key, Value]):
    """The values of the last `limit` keys that were set, in this order; the oldest is removed first."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def set(self, key: Key, value: Value) -> Value:
        """Store the value in place of an earlier one, and return it."""
        self[key] = value
        self.move_to_end(key)
        while len(self) > self._limit:
            self.popitem(last=False)
        return value
