"""What is new in a session beyond what a reader knows of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from contextstash_storage.records import KnownPart, Request, Session
from contextstash_storage.sql import requests
from contextstash_storage.sql.edits import edit_records
from contextstash_storage.sql.messages import MessageRows, rows_between
from contextstash_storage.sql.outputs import output_rows
from contextstash_storage.sql.rows import read_session
from contextstash_storage.sql.steps import Steps


@dataclass(frozen=True, slots=True)
class News:
    """A session and its newest request, and its edits, messages and outputs as they are stored."""

    session: Session
    request: Request | None
    edits: Sequence[str]
    messages: MessageRows
    outputs: Sequence[Any]


def read_news(owner: str, session_id: str, known: KnownPart) -> Steps[News]:
    """The news of a session. Raises SessionNotFoundError."""
    key, session = yield from read_session(owner, session_id)
    counters = session.counters
    newest = (yield from requests.read_requests(key)) if counters.requests else []
    edits = (yield from edit_records(key, known.edits)) if counters.edits > known.edits else []
    span = known.span(counters)
    messages, outputs = MessageRows(key, session_id), []
    if span is not None:
        messages = yield from rows_between(key, session, *span)
        outputs = yield from output_rows(key, *span)
    return News(session, newest[0] if newest else None, edits, messages, outputs)
