"""Retrieval: pages of archived outputs, and search over everything that was ever recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from contextstash.context.text.paging import page
from contextstash.context.text.snippets import snippet
from contextstash.service.recording.output_archive import outputs_session_id
from contextstash.service.results import Hit, OutputPage, SearchResult
from contextstash.service.session_access import Access
from contextstash_storage.errors import BadInputError, HandleNotFoundError, NotFoundError
from contextstash_storage.records import Output, SearchHit

DEFAULT_PAGE_TOKENS = 4_000
MAX_PAGE_TOKENS = 8_000
"""Clients warn or cut at about 10,000 tokens of tool result."""

FIELDS_TOKENS = 80
"""The tokens of a page's other fields: 70 with the longest note and a tool's name of usual length, measured."""

MIN_PAGE_TOKENS = 100
"""The smallest page: its fields, and a line of text."""

MAX_QUERY_CHARACTERS = 4_000
"""The store ignores the rest of a longer query."""

DEFAULT_HITS = 10
MAX_HITS = 50
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
) -> OutputPage:
    """One page of an original output. Raises HandleNotFoundError, BadInputError if the pattern is invalid, and
    OverloadedError if too many pattern searches are running."""
    most = DEFAULT_PAGE_TOKENS if max_tokens is None else max_tokens
    if most < MIN_PAGE_TOKENS:
        raise BadInputError(f"max_tokens must be {MIN_PAGE_TOKENS} or more.")
    bound = min(most, MAX_PAGE_TOKENS)
    found_in, output = await _find(access, handle.strip(), session_id)
    session = await access.store.get_session(found_in)
    text = await access.output_text(session, output)
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
    result = await (asyncio.to_thread(make) if pattern is None else access.searches.run(make))
    return OutputPage(
        handle=output.handle,
        tool=output.tool,
        text=result.text,
        total_lines=result.total_lines,
        total_tokens=result.total_tokens,
        next_offset=result.next_offset,
        note=result.note,
    )


async def _find(access: Access, handle: str, session_id: str | None) -> tuple[str, Output]:
    """The session and output of a handle: in the named session, or among the outputs archived for it."""
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
) -> SearchResult:
    """Ranked hits. `scope` is `session` (the default), `outputs` or `messages` (only those of the session), or
    `everywhere` (all of the owner's sessions; also the scope if no session is named or followed)."""
    if not query.strip():
        raise BadInputError("query is empty: pass the words, names or paths to look for.")
    if scope is not None and scope not in SCOPES:
        raise BadInputError(f"scope is one of {', '.join(SCOPES)}, not '{scope}'.")
    most = min(MAX_HITS, DEFAULT_HITS if limit is None else limit)
    if most < 1:
        raise BadInputError("limit must be 1 or more.")
    if scope == "everywhere":
        session_id = None
    elif session_id is None:
        session_id = await access.current_session_id()
    else:
        await access.session(session_id)
    kind = scope if scope in ("outputs", "messages") else "all"
    hits = await _hits(access, query, session_id, kind, most)
    note = None if hits else "Nothing found. Try fewer or other words; matches of all words come first."
    terms = query[:MAX_QUERY_CHARACTERS].split()
    shown = await asyncio.to_thread(lambda: [_hit(hit, terms) for hit in hits])
    return SearchResult(hits=shown, note=note)


async def _hits(access: Access, query: str, session_id: str | None, kind: str, most: int) -> list[SearchHit]:
    """The best hits, including those among the outputs archived for the session."""
    hits = await access.store.search(query, session_id=session_id, scope=kind, limit=most)
    if session_id is None or kind == "messages":
        return hits
    with suppress(NotFoundError, BadInputError):
        kept = outputs_session_id(session_id)
        hits += await access.store.search(query, session_id=kept, scope="outputs", limit=most)
    return sorted(hits, key=lambda hit: -hit.score)[:most]


def _hit(hit: SearchHit, terms: Sequence[str]) -> Hit:
    text, matched = snippet(hit.text, terms)
    return Hit(
        handle=hit.handles[0] if hit.handles else None,
        session_id=hit.session_id,
        seq=hit.seq,
        role=hit.role,
        snippet=text,
        score=round(hit.score, 3),
        matched=matched,
    )
