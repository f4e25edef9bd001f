"""The price of a sequence of requests with a prompt cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

CACHE_READ, CACHE_WRITE = 0.10, 1.25
"""Prices of a token read from and written to the prompt cache, relative to one uncached input token. Source:
Anthropic's page on prompt caching, for its five-minute cache."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A message as a view shows it: a key that is equal only for equal bytes, its tokens and its facts."""

    key: object
    tokens: int
    facts: frozenset[str]


def tokens_of(view: Sequence[Shown]) -> int:
    return sum(shown.tokens for shown in view)


def shared_tokens(before: Sequence[Shown], now: Sequence[Shown]) -> int:
    """The tokens at the head of both views, which the prompt cache holds."""
    same = takewhile(lambda pair: pair[0].key == pair[1].key, zip(before, now, strict=False))
    return sum(shown.tokens for _, shown in same)


def price(before: Sequence[Shown], now: Sequence[Shown]) -> float:
    """What the request `now` costs after the request `before`, in uncached input tokens."""
    cached = shared_tokens(before, now)
    return CACHE_READ * cached + CACHE_WRITE * (tokens_of(now) - cached)
