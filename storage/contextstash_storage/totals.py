"""Sums over what is stored, of one session or of all: records alone."""

from __future__ import annotations

from datetime import datetime

from contextstash_storage.records import Record


class ToolSum(Record):
    """The outputs of one tool, and their tokens."""

    tool: str
    outputs: int
    tokens: int


class DaySum(Record):
    """The agents' model calls of one day (in UTC, as in 2026-05-31) to one model, and their tokens. `cost` is the sum
    of the costs that were stored with them, in US dollars; `priced` are the calls that have one."""

    day: str
    model: str | None
    calls: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    cost: float
    priced: int


class Totals(Record):
    """All sessions of an owner. `tokens` are those of all messages ever recorded; `tools` have the most tokens first,
    `days` are in order."""

    sessions: int
    messages: int
    tokens: int
    tools: tuple[ToolSum, ...]
    days: tuple[DaySum, ...]


class StoreMark(Record):
    """What is different after any change: how many sessions an owner has, and when one of them was changed last."""

    sessions: int
    changed_at: datetime | None = None
