"""What smaller windows cost and lose, with the real hand-off: recorded sessions, compacted earlier by their clients.

    python -m bench.windows FOLDER [SIZES, such as 60000,100000] [cache=5m|1h] [view=TOKENS]

Each session's requests are replayed by their recorded growth and cache luck (`queries/costs.py`). When one
would exceed the size, the client compacts: the call that writes its summary is charged, and the window that the cache
has not seen. The new window holds the hand-off that the service makes of the session up to there, and what came since;
the client's summary takes its room, and is counted as empty, since none was written there. A reply lacks something if
the recorded agent wrote a fact that its request showed and that this window does not. It then searches once with its
own words: the call and what it brings are charged and stay in the window. `cache` replays Claude Code with that cache:
a pause that it outlives costs nothing, a longer one has all written again. With `view` our plugin answers
the compactions of Claude Code: no call for a summary, and the new window holds our view of about so many tokens; if
nothing can leave, the client compacts itself.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.fidelity.facts import facts_of
from bench.fidelity.sessions import tokens_of_text
from bench.recorded_requests import Recorded, cache_price_ratios, facts_in, recorded, texts
from contextstash.queries.costs import MIN_FREED, RESTART, SUMMARY_TOKENS, hidden_prefix
from contextstash.record.transcript_records import TranscriptMessage, TranscriptSession
from contextstash.request.handoff import ClientCall, ClientMessage, ClientResult
from contextstash.stash import Stash
from contextstash.window.token_counters import family_of
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Cursor, Usage
from contextstash_storage.sqlite import open_sqlite
from tests.support.client_files import applied

SIZES = (60_000, 80_000, 100_000, 120_000, 150_000)

LEAST_CALLS = 30
"""Shorter sessions are left out: nothing can be saved in them."""

REPLY_PRICE = 5.0
"""The price of a written token, relative to an uncached one: that of all current models of the two providers."""

CALL_TOKENS = 150
"""Of a search: its name, its query and the frame of its answer."""

MAX_HITS = 5

PAGE_TOKENS = 2_500
"""Of an output that a hit leads to: the agent reads a page of it."""

QUERY_CHARACTERS = 3_900


@dataclass
class Curve:
    """What all sessions cost in one window, in uncached input tokens."""

    cost: float = 0.0
    tokens: int = 0
    compactions: int = 0
    replies: int = 0
    lacking: int = 0
    lacking_after_search: int = 0
    retrievals: float = 0.0
    worst: float = 0.0
    worst_within: float = 0.0
    repaid: list[int] = field(default_factory=list)
    never_repaid: int = 0


@dataclass
class Window:
    """A session in a window: its size now, and what it holds since its compaction before request `since`."""

    path: Path
    calls: Sequence[Recorded]
    point: int
    curve: Curve
    stash: Stash
    view: int = 0
    size: int = 0
    since: int | None = None
    handed: set[str] = field(default_factory=set)
    cost: float = 0.0
    direct: float = 0.0
    within: float = 0.0
    unpaid_since: int | None = None
    compacted: bool = False

    async def run(self) -> None:
        """Replay the session, and add it to the curve."""
        usages = [Usage(prompt_tokens=call.prompt, cached_tokens=call.cached) for call in self.calls]
        prefix = hidden_prefix(usages)
        self.size, extra = self.calls[0].prompt, 0
        for number, step in enumerate(self.calls):
            before = self.calls[number - 1] if number else step
            fresh = max(0, step.prompt - step.cached)
            self.direct += self._price(step, step.cached, step.written, fresh - step.written)
            if step.prompt < RESTART * before.prompt:
                self.size, self.since, extra = min(self.size, step.prompt), None, 0
                grown = 0
            else:
                grown = max(0, step.prompt - before.prompt)
                self.size = min(step.prompt + extra, max(prefix, self.size + step.prompt - before.prompt))
            restarted = prefix + (self.view or SUMMARY_TOKENS)
            share = fresh / step.prompt if fresh > step.prompt / 2 else 0.0
            new = min(self.size, max(grown, round(share * self.size), min(fresh, self.size) if not share else 0))
            if self.size > self.point and self.size - restarted > MIN_FREED * self.point:
                self.curve.compactions += 1
                if not self.compacted:
                    self.unpaid_since, self.compacted = number, True
                self.size = prefix + await self._compact(number, new)
                self.cost += self._price(step, prefix, self.size - prefix, 0)
            else:
                written = new if step.written else 0
                self.cost += self._price(step, self.size - new, written, new - written)
            self.curve.tokens += self.size
            brought = await self._reply(number)
            self.size, extra = self.size + brought, extra + brought
            if self.unpaid_since is not None and self.cost <= self.direct:
                self.curve.repaid.append(number - self.unpaid_since)
                self.unpaid_since = None
            if number >= 10:
                self.within = max(self.within, self.cost / self.direct)
        self.curve.never_repaid += self.unpaid_since is not None
        self.curve.cost += self.cost
        self.curve.worst = max(self.curve.worst, self.cost / self.direct)
        self.curve.worst_within = max(self.curve.worst_within, self.within)

    def _price(self, call: Recorded, read: int, written: int, plain: int) -> float:
        ratios = cache_price_ratios(call.model)
        write = (ratios.long_write if call.one_hour else ratios.write) if ratios else 1.25
        return (ratios.read if ratios else 0.1) * read + write * written + plain

    async def _compact(self, number: int, new: int) -> int:
        """Compact the window before a request, of which `new` tokens are not in the cache; what it holds then."""
        call = self.calls[number]
        session_id = f"{self.path.stem}-{self.point}-{number}"
        await self.stash.record_transcript(
            TranscriptSession(session_id, call.format, model=call.model),
            [TranscriptMessage(message, key=str(place)) for place, message in enumerate(call.messages)],
            Cursor(source=session_id),
        )
        text = await self._inside(call, session_id) if self.view else None
        size = 0
        if text is None:  # the client compacts itself, with a call that reads the whole window
            self.cost += self._price(call, self.size - new, 0, new) + REPLY_PRICE * SUMMARY_TOKENS
            self.curve.tokens += self.size
            size = SUMMARY_TOKENS
            text = await self.stash.hand_off_text(session_id, None) or ""
        self.since, self.handed = number, set(facts_of(text))
        return size + _tokens(call, text)

    async def _inside(self, call: Recorded, session_id: str) -> str | None:
        """What the window holds if our plugin answers; None if nothing can leave."""
        listed = [_of_client(str(place), message) for place, message in enumerate(call.messages)]
        try:
            window = await self.stash.compact_client_window(session_id, listed, tokens=self.view)
        except BadInputError:
            return None
        return "\n".join(piece for message in applied(listed, window.messages) for piece in _said(message))

    async def _reply(self, number: int) -> int:
        """Look at the reply to a request; the tokens that a search for what it lacks brings."""
        call = self.calls[number]
        if not call.reply:
            return 0
        self.curve.replies += 1
        if self.since is None:
            return 0
        seen = self.calls[self.since].messages
        later = call.messages[len(seen) :]
        missing = (facts_in(call.reply) - self.handed - facts_in(later)) & facts_in(call.messages)
        if not missing:
            return 0
        self.curve.lacking += 1
        found, brought = await self._search(call, missing)
        self.curve.lacking_after_search += bool(missing - found)
        self.handed |= missing
        before = self.cost
        self.cost += self._price(call, self.size, brought, 0)
        self.curve.retrievals += self.cost - before
        return brought

    async def _search(self, call: Recorded, missing: set[str]) -> tuple[set[str], int]:
        """The facts that one search finds, and its tokens: the hits' texts, and the outputs with what is missing."""
        query = " ".join(" ".join(texts(list(call.reply))).split())[:QUERY_CHARACTERS]
        if self.since is None or not re.search(r"\w", query):
            return set(), CALL_TOKENS
        session_id = f"{self.path.stem}-{self.point}-{self.since}"
        result = await self.stash.search_history(query, session_id=session_id, limit=MAX_HITS)
        found: set[str] = set()
        brought = CALL_TOKENS
        for hit in result.hits:
            found |= facts_of(hit.snippet)
            brought += _tokens(call, hit.snippet)
        for hit in result.hits:
            if hit.handle and missing - found:
                page = await self.stash.get_archived_output(hit.handle, session_id=session_id, max_tokens=PAGE_TOKENS)
                if missing & facts_of(page.text):
                    found |= facts_of(page.text)
                    brought += _tokens(call, page.text)
        return found, brought


def _of_client(key: str, message: dict[str, Any]) -> ClientMessage:
    """A message as Claude Code gives it to a plugin."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    kinds = {kind: [each for each in blocks if each["type"] == kind] for kind in ("text", "tool_use", "tool_result")}
    return ClientMessage(
        key,
        message["role"],
        "\n".join(each["text"] for each in kinds["text"]),
        tuple(ClientCall(each["id"], each["name"], each["input"]) for each in kinds["tool_use"]),
        tuple(ClientResult(each["tool_use_id"], "\n".join(texts([each]))) for each in kinds["tool_result"]),
    )


def _said(message: ClientMessage) -> list[str]:
    calls = [f"{call.tool} {json.dumps(call.input)}" for call in message.calls]
    return [message.text, *calls, *(result.text for result in message.results)]


def _tokens(call: Recorded, text: str) -> int:
    """The tokens of a text for the model of a request, as the product estimates them."""
    return round(tokens_of_text(text) * family_of(call.model).factor)


LIFETIMES = {"5m": 300, "1h": 3600}
"""Seconds that a cache entry lives after its last use. Source: docs/measured.md, "When it prunes"."""


def recached(calls: Sequence[Recorded], cache: str) -> None:
    """Replay what was recorded with one cache as if the client had asked for this one."""
    for before, call in pairwise(calls):
        pause, lived = call.at - before.at, LIFETIMES["1h" if call.one_hour else "5m"]
        if pause > LIFETIMES[cache]:
            call.cached, call.written = 0, call.prompt
        elif pause > lived:
            call.cached = min(before.prompt, call.prompt)
            call.written = call.prompt - call.cached
    for call in calls:
        call.one_hour = cache == "1h"


async def curve_of(paths: Sequence[Path], point: int, cache: str, view: int) -> tuple[Curve, float]:
    """The curve of one window over all sessions, and what they cost as they were recorded, or with this cache."""
    curve, direct = Curve(), 0.0
    for path in paths:
        calls = recorded(path)
        if len(calls) < LEAST_CALLS:
            continue
        if cache:
            recached(calls, cache)
        with tempfile.TemporaryDirectory(prefix="contextstash-bench") as folder:
            stash = Stash(await open_sqlite(Path(folder) / "sessions.db"), settings={"automatic": False})
            try:
                window = Window(path, calls, point, curve, stash, view)
                await window.run()
                direct += window.direct
            finally:
                await stash.close()
    return curve, direct


def main() -> None:
    """Print a line for each window."""
    given = [argument for argument in sys.argv[1:] if "=" not in argument]
    named = dict(argument.split("=", 1) for argument in sys.argv[1:] if argument not in given)
    cache, view = named.get("cache", ""), int(named.get("view", 0))
    paths = sorted(Path(given[0]).glob("*.jsonl")) if given else []
    if len(given) > 2 or not paths or cache not in ("", *LIFETIMES):
        sys.exit(__doc__)
    sizes = [int(size) for size in given[1].split(",")] if len(given) == 2 else list(SIZES)
    print(
        "| compacts at | compactions | cost / direct | worst session | worst within | requests until it has paid |"
        " of it retrievals | replies that lack something | after one search |"
    )
    print("| --- " * 9 + "|")
    for size in sizes:
        curve, direct = asyncio.run(curve_of(paths, size, cache, view))
        replies = max(1, curve.replies)
        paid = f"{statistics.median(curve.repaid):.0f} (at most {max(curve.repaid)})" if curve.repaid else "-"
        print(
            f"| {size:,} | {curve.compactions} | {curve.cost / direct:.3f} | {curve.worst:.3f} |"
            f" {curve.worst_within:.3f} | {paid}{f', never {curve.never_repaid}' if curve.never_repaid else ''} |"
            f" {curve.retrievals / direct:.3f} | {curve.lacking / replies:.1%} |"
            f" {curve.lacking_after_search / replies:.1%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
