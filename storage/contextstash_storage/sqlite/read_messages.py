"""The rows of messages with their bodies, the records made of them, and what is new in a session."""

from __future__ import annotations

import sqlite3

from contextstash_storage.codec.record_json import edit_of
from contextstash_storage.records import KnownPart, SessionNews
from contextstash_storage.sql import requests
from contextstash_storage.sql.edits import edit_records
from contextstash_storage.sql.messages import MessageRows, rows_between
from contextstash_storage.sql.outputs import output_rows
from contextstash_storage.sqlite.connection import run, session_row
from contextstash_storage.sqlite.output_rows import output_of


def read_news(db: sqlite3.Connection, owner: str, session_id: str, known: KnownPart) -> tuple[SessionNews, MessageRows]:
    """The news of a session, and the rows of its messages, which are made of them elsewhere. Raises
    SessionNotFoundError."""
    row, session = session_row(db, owner, session_id)
    counters = session.counters
    newest = run(db, requests.read_requests((row,))) if counters.requests else []
    edits = run(db, edit_records((row,), known.edits)) if counters.edits > known.edits else []
    span = known.span(counters)
    rows = run(db, rows_between((row,), session, *span)) if span else MessageRows((row,), session_id)
    outputs = map(output_of, run(db, output_rows((row,), *span))) if span else ()
    news = SessionNews(session, known, newest[0] if newest else None, tuple(map(edit_of, edits)), (), tuple(outputs))
    return news, rows
