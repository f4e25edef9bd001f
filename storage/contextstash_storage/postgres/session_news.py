"""The news of a session, read from PostgreSQL in one transaction."""

from __future__ import annotations

from contextstash_storage.codec.record_json import edit_of
from contextstash_storage.postgres.connection import Connection
from contextstash_storage.postgres.dialect import output_of, run
from contextstash_storage.records import KnownPart, SessionNews
from contextstash_storage.sql import requests
from contextstash_storage.sql.edits import edit_records
from contextstash_storage.sql.messages import rows_between
from contextstash_storage.sql.outputs import output_rows
from contextstash_storage.sql.rows import made, read_session
from contextstash_storage.sql.steps import Key


async def read_news(db: Connection, key: Key, known: KnownPart) -> SessionNews:
    """The news of a session. Raises SessionNotFoundError."""
    _, session = await run(db, read_session(*key))
    counters = session.counters
    newest = await run(db, requests.read_requests(key)) if counters.requests else []
    edits = await made(edit_of, await run(db, edit_records(key, known.edits))) if counters.edits > known.edits else []
    span = known.span(counters)
    read = await (await run(db, rows_between(key, session, *span))).messages() if span else []
    outputs = await made(output_of, await run(db, output_rows(key, *span))) if span else []
    return SessionNews(session, known, newest[0] if newest else None, tuple(edits), tuple(read), tuple(outputs))
