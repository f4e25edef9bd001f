"""The news of a session, read from PostgreSQL in one transaction."""

from __future__ import annotations

from contextstash_storage.postgres import messages, view_edits
from contextstash_storage.postgres.connection import Connection
from contextstash_storage.postgres.dialect import run
from contextstash_storage.postgres.sessions import read_session
from contextstash_storage.records import KnownPart, SessionNews
from contextstash_storage.sql import requests
from contextstash_storage.sql.steps import Key


async def read_news(db: Connection, key: Key, known: KnownPart) -> SessionNews:
    """The news of a session. Raises SessionNotFoundError."""
    session = await read_session(db, key)
    counters = session.counters
    newest = await run(db, requests.read_requests(key, 1)) if counters.requests else []
    edits = await view_edits.read_edits(db, key, known.edits) if counters.edits > known.edits else []
    span = known.span(counters)
    read = await messages.read_range(db, key, *span, bodies=True) if span else []
    outputs = await messages.read_outputs(db, key, *span) if span else []
    return SessionNews(session, known, newest[0] if newest else None, tuple(edits), tuple(read), tuple(outputs))
