"""The news of a session, read from SQLite in one turn of the connection that reads."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from contextstash_storage.session_news import KnownPart, SessionNews
from contextstash_storage.sql import requests
from contextstash_storage.sqlite.dialect import run, session_row
from contextstash_storage.sqlite.message_rows import MessageRows, rows_between
from contextstash_storage.sqlite.outputs import outputs_between
from contextstash_storage.sqlite.view_edits import edits_of

NO_ROWS = MessageRows("", ())


@dataclass(frozen=True, slots=True)
class NewsRows:
    """The news as the database has them: the messages are made of their rows elsewhere."""

    news: SessionNews
    rows: MessageRows


def read_news(db: sqlite3.Connection, owner: str, session_id: str, known: KnownPart) -> NewsRows:
    """The news of a session. Raises SessionNotFoundError."""
    row, session = session_row(db, owner, session_id)
    counters = session.counters
    newest = run(db, requests.read_requests((row,), 1)) if counters.requests else []
    edits = edits_of(db, row, counters, known.edits) if counters.edits > known.edits else []
    span = known.span(counters)
    rows = rows_between(db, row, session_id, *span, bodies=True) if span else NO_ROWS
    outputs = outputs_between(db, row, *span) if span else ()
    news = SessionNews(session, known, newest[0] if newest else None, tuple(edits), (), tuple(outputs))
    return NewsRows(news, rows)
