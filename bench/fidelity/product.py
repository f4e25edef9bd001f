"""contextstash as a policy: the views that a loop gets which records each step and sends what `get_context` returns."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contextstash.stash import Stash
from contextstash_storage.sqlite import open_sqlite

from .baselines import Policy
from .costs import Shown
from .facts import facts_of
from .sessions import Native, Said, prose_of, size_of, text_of

SESSION = "measured"
MODEL = "gpt-5"

MAX_HITS = 5
"""Hits of the one search; what a model looks through without asking for more."""

MAX_QUERY_CHARACTERS = 3_900
"""The longest query that search_history accepts is a little longer."""


class ProductRun:
    """One session in a database of its own, with the settings of one preset."""

    def __init__(self, budget: int, **settings: Any) -> None:
        self._budget = budget
        self._loop = asyncio.Runner()
        self._folder = tempfile.TemporaryDirectory(prefix="contextstash-bench")
        self._recorded = 0
        self.invalid = 0
        self.natives: list[Native] = []
        self.done: list[str] = []
        chosen = {"window": budget, "output_reserve": 0, **settings}
        self._stash = self._loop.run(self._opened(chosen))

    async def _opened(self, settings: dict[str, Any]) -> Stash:
        return Stash(await open_sqlite(Path(self._folder.name) / "sessions.db"), settings=settings)

    def view(self, messages: Sequence[Said]) -> Sequence[Shown]:
        return self._loop.run(self._view(messages))

    async def _view(self, messages: Sequence[Said]) -> Sequence[Shown]:
        new = [message.native for message in messages[self._recorded :]]
        if new:
            recorded = await self._stash.record_messages(new, session_id=SESSION, format="openai-chat", model=MODEL)
            self.done = list(recorded.done)
        self._recorded = len(messages)
        result = await self._stash.get_context(SESSION, budget=self._budget)
        self.natives = result.messages
        self.invalid += bool(broken_rules(self.natives))
        return [
            Shown(json.dumps(native, sort_keys=True), size_of(native), facts_of(prose_of(native)))
            for native in self.natives
        ]

    def found_by_one_search(self, messages: Sequence[Said], at: int) -> frozenset[str]:
        """The facts that one search with the agent's next words finds, in its snippets and in the outputs that they
        name."""
        query = first_query(messages[at + 1 :])
        if not query:
            return frozenset()
        return self._loop.run(self._found(messages, query, at))

    async def _found(self, messages: Sequence[Said], query: str, at: int) -> frozenset[str]:
        result = await self._stash.search_history(query, session_id=SESSION, limit=MAX_HITS)
        found = [facts_of(hit.snippet) for hit in result.hits]
        found += [
            messages[hit.seq].facts for hit in result.hits if hit.handle and hit.seq is not None and hit.seq <= at
        ]
        return frozenset[str]().union(*found)

    def close(self) -> None:
        self._loop.run(self._stash.close())
        self._loop.close()
        self._folder.cleanup()


def first_query(messages: Sequence[Said]) -> str:
    """A search with the agent's next words; empty if it says and calls nothing."""
    query = next((words for message in messages if (words := _query(message))), "")
    return query if re.search(r"\w", query) else ""


def _query(message: Said) -> str:
    if message.role != "assistant":
        return ""
    calls = message.native.get("tool_calls") or ()
    arguments = " ".join(call["function"]["arguments"] for call in calls)
    return f"{text_of(message.native)[:1500]} {arguments}".replace("\\n", " ").strip()[:MAX_QUERY_CHARACTERS]


def broken_rules(natives: Sequence[Native]) -> list[str]:
    """The rules of Chat Completions that a message list breaks, checked independently of contextstash: each result
    follows its call, each call has its result, and no message is empty."""
    broken: list[str] = [] if natives else ["no messages"]
    waiting: list[str] = []
    for place, native in enumerate(natives):
        if native["role"] == "tool":
            if native.get("tool_call_id") not in waiting:
                broken.append(f"message {place}: a result without its call")
                continue
            waiting.remove(native["tool_call_id"])
            continue
        if waiting:
            broken.append(f"message {place}: {len(waiting)} calls before it have no result")
        waiting = [call["id"] for call in native.get("tool_calls") or ()]
        if not waiting and not native.get("content"):
            broken.append(f"message {place}: empty")
    return [*broken, *(["the last calls have no result"] if waiting else [])]


def product(**settings: Any) -> Policy:
    """A policy that uses contextstash with these settings."""
    return lambda budget: ProductRun(budget, **settings)
