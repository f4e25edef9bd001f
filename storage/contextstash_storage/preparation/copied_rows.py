"""The items of a whole session that is copied, made ready for their rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from contextstash_storage.preparation.messages import Form, Prepared, prepare
from contextstash_storage.records import Call, Copied, DeclaredVersion, EditRecord, Event, NewMessage, Request

ITEMS_AT_ONCE = 200


Row = Prepared | EditRecord | Event | Call | DeclaredVersion | Request


def read_rows(items: Iterator[Copied], form: Form) -> deque[Row]:
    """The next items, ready to be stored in this form; none at the end. Nothing of the database is needed or held."""
    rows: deque[Row] = deque()
    characters = 0
    for item in items:
        if isinstance(item, NewMessage):
            rows += prepare([item], form)
            characters += len(item.search_text)
        else:
            rows.append(item)
        if len(rows) >= ITEMS_AT_ONCE or characters >= CHARACTERS_AT_ONCE:
            break
    return rows


CHARACTERS_AT_ONCE = 500_000
"""Items are read and prepared up to this many at a time, and up to about this much text."""
