"""How much a test run tries: a few examples of each property for `make test`, all of them for `make test-all`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")

THOROUGH = os.environ.get("TEST_EFFORT") == "thorough"
"""The variable has no CONTEXTSTASH_ before its name: the product refuses settings that it does not know."""

QUICK_SHARE = 10
"""A quick run tries every tenth example: chosen so that `make test` ends within minutes on two cores."""

MIN_EXAMPLES = 5
"""Fewer examples of a property hardly ever find a failure: a guess."""


def examples(thorough: int) -> int:
    """How many examples of a property to try, given how many a thorough run tries."""
    return thorough if THOROUGH else max(MIN_EXAMPLES, thorough // QUICK_SHARE)


def sample(items: Sequence[Item], quick: int) -> list[Item]:
    """All items in a thorough run; otherwise `quick` of them, evenly spread."""
    if THOROUGH or len(items) <= quick:
        return list(items)
    step = len(items) / quick
    return [items[int(place * step)] for place in range(quick)]
