"""Retrieval: pages of archived outputs, and search over everything that was ever recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

import anyio.to_thread

from contextstash.outputs.digest import without_json_envelopes, without_reminders
from contextstash.outputs.paging import page, snippet
from contextstash.record.output_archive import outputs_session_id
from contextstash.results import Hit, OutputPage, SearchResult
from contextstash.safety.sanitize import defused, one_line
from contextstash.session.access import Access
from contextstash.session.masks import shown_text
from contextstash_storage.errors import BadInputError, HandleNotFoundError
from contextstash_storage.records import Output, SearchHit
from contextstash_storage.search import STOP_WORDS, SearchFilter, Weigh

DEFAULT_PAGE_TOKENS = 4_000
MAX_PAGE_TOKENS = 8_000
"""Clients warn or cut at about 10,000 tokens of tool result."""

FIELDS_TOKENS = 90
"""The tokens of a page's other fields: 80 with the longest note and a tool's name of usual length, measured."""

MAX_TOOL_CHARACTERS = 200
"""Longest name of a tool in a result; providers allow 64 to 128."""

MIN_PAGE_TOKENS = 100
"""The smallest page: its fields, and a line of text."""

MAX_QUERY_CHARACTERS = 4_000
"""The store ignores the rest of a longer query."""

DEFAULT_HITS = 10
MAX_HITS = 50

SHOWN_WEIGHT = 0.1
"""How much a hit counts that the view shows: who searches wants what they do not see. 0.3 finds 0.2 in a hundred of the
facts that an agent needs next less (half of the recorded sessions), 0.03 no more; 0 would leave out the best hit."""

EXCERPTS = 4_800
"""Characters of the excerpts of one answer, about 1,200 tokens: less than a page of one output, which is what an agent
fetches next if the excerpts do not say enough."""

MIN_EXCERPT, MAX_EXCERPT = 240, 600
"""Characters of one excerpt: a few lines, however many hits there are, and not more than two parts of a dozen."""

NOTHING_FOUND = (
    "Nothing found: no text{} has any of these words. Only whole words are found: check them, or try others."
)
SCOPES = ("session", "outputs", "messages", "everywhere")


async def get_archived_output(
    access: Access,
    handle: str,
    *,
    session_id: str | None = None,
    offset: int | None = None,
    limit: int | None = None,
    pattern: str | None = None,
    max_tokens: int | None = None,
    masked: bool = False,
) -> OutputPage:
    """One page of an original output, or if it is `masked`, for a reader's eyes, of one without secrets. Raises
    HandleNotFoundError, and BadInputError if the pattern is invalid."""
    most = DEFAULT_PAGE_TOKENS if max_tokens is None else max_tokens
    if most < MIN_PAGE_TOKENS:
        raise BadInputError(f"max_tokens must be {MIN_PAGE_TOKENS} or more.")
    bound = min(most, MAX_PAGE_TOKENS)
    found_in, output = await find_output(access, handle.strip(), session_id)
    session = await access.store.get_session(found_in)
    text = await access.output_text(session, output)
    text = shown_text(access.settings(session), text) if masked else text
    counter = access.counter(access.settings(session), session.model)
    make = partial(
        page,
        text,
        offset=offset,
        limit=limit,
        pattern=pattern,
        max_tokens=bound - FIELDS_TOKENS,
        count=counter.count,
        total_tokens=output.tokens,
    )
    # A slow pattern delays only other searches for patterns: asyncio's own threads are shared by all retrievals.
    limiter = None if pattern is None else access.pattern_threads
    result = await anyio.to_thread.run_sync(make, limiter=limiter)
    return OutputPage.of(result, handle=output.handle, tool=one_line(output.tool, MAX_TOOL_CHARACTERS))


async def find_output(access: Access, handle: str, session_id: str | None = None) -> tuple[str, Output]:
    """The session and output of a handle: in the named session, or among the outputs archived for it. Raises
    HandleNotFoundError."""
    try:
        return await access.store.find_output(handle, session_id)
    except HandleNotFoundError:
        if session_id is None:
            raise
        return await access.store.find_output(handle, outputs_session_id(session_id))


async def search_history(
    access: Access,
    query: str,
    *,
    session_id: str | None = None,
    limit: int | None = None,
    scope: str | None = None,
    since: str | None = None,
    unseen_first: bool = True,
) -> SearchResult:
    """Ranked hits. `scope` is `session` (the default), `outputs` or `messages` (only those of the session), or
    `everywhere` (all of the owner's sessions; also the scope if no session is named or followed). `since`: only
    messages from then on, a date or a time in ISO format. With `unseen_first` what the session's view shows counts
    less."""
    if not query.strip():
        raise BadInputError("query is empty: pass the words, names or paths to look for.")
    if scope is not None and scope not in SCOPES:
        raise BadInputError(f"scope is one of {', '.join(SCOPES)}, not '{scope}'.")
    most = min(MAX_HITS, DEFAULT_HITS if limit is None else limit)
    if most < 1:
        raise BadInputError("limit must be 1 or more.")
    searched = await _searched(access, session_id, scope)
    where = SearchFilter(
        session_ids=None if searched is None else [searched, outputs_session_id(searched)],
        scope=scope if scope in ("outputs", "messages") else "all",
        after=None if since is None else _time(since),
    )
    weigh = await _unseen_first(access, searched) if unseen_first and searched is not None else None
    hits = await access.store.search(query, where, limit=most, weigh=weigh)
    shown = await asyncio.to_thread(_shown, hits, query)
    return SearchResult(hits=shown, note=None if shown else NOTHING_FOUND.format(f" since {since}" if since else ""))


async def _searched(access: Access, session_id: str | None, scope: str | None) -> str | None:
    """The session to search; None for all."""
    if scope == "everywhere":
        return None
    if session_id is None:
        return await access.current_session_id()
    await access.read_session(session_id)
    return session_id


async def _unseen_first(access: Access, session_id: str) -> Weigh:
    """Weighs down the messages that the session's view shows."""
    shows = await access.shows_whole(await access.store.get_session(session_id))
    return lambda found_in, seq: SHOWN_WEIGHT if found_in == session_id and shows(seq) else 1.0


def _time(text: str) -> datetime:
    """The time that `since` names. Raises BadInputError."""
    try:
        time = datetime.fromisoformat(text.strip())
        time.astimezone(UTC)  # raises OverflowError at either end of the calendar
    except (ValueError, OverflowError) as error:
        raise BadInputError(
            f"since is a date or a time such as 2026-05-31 or 2026-05-31T14:00, not '{text}'."
        ) from error
    return time


def _shown(found: Sequence[SearchHit], query: str) -> list[Hit]:
    words = query[:MAX_QUERY_CHARACTERS].split()
    terms = [word for word in words if word.strip(".,:;?!").lower() not in STOP_WORDS] or words
    texts = [without_reminders(without_json_envelopes(hit.text)) for hit in found]
    room = min(MAX_EXCERPT, max(MIN_EXCERPT, EXCERPTS // max(1, len(found))))
    return [_hit(hit, *snippet(text, terms, room)) for hit, text in zip(found, texts, strict=True)]


def _hit(hit: SearchHit, text: str, matched: list[str]) -> Hit:
    return Hit.of(
        hit,
        handle=hit.handles[0] if hit.handles else None,
        tool=None if hit.tool is None else one_line(hit.tool, MAX_TOOL_CHARACTERS),
        snippet=defused(text),
        score=round(hit.score, 3),
        matched=matched,
    )
