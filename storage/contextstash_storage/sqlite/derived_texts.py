"""Changes what is stored of messages beside their bodies: the text of the search index, and the calls' arguments.

A text that was indexed before its secrets were masked is replaced by one of the same length.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from contextstash_storage.codec.bodies import put_together
from contextstash_storage.codec.text_references import referring, sources
from contextstash_storage.search.documents import documents, pieces
from contextstash_storage.sqlite.rows import IS_SEEN
from contextstash_storage.sqlite.search_index import (
    StoredText,
    indexed_pieces,
    insert_pieces,
    is_queued,
    queue,
    read_searchables,
    remove_pieces,
)

Change = Callable[[str], str]
"""A text of the same length, or the text itself if there is nothing to change. Pure."""


def changed_messages(db: sqlite3.Connection, change: Change, after: int, limit: int) -> tuple[list[int], int | None]:
    """Those messages behind number `after`, among the next `limit`, of which something would be changed, and the
    number of the last one that was looked at; None if there are no more."""
    rows = db.execute(
        "SELECT message, derived FROM messages JOIN sessions USING (session)"
        f" WHERE message > ? AND {IS_SEEN} ORDER BY message LIMIT ?",
        (after, limit),
    ).fetchall()
    searchables = read_searchables(db, [message for message, _ in rows])
    found = [
        message
        for message, derived in rows
        if change(derived) != derived
        or (message in searchables and change(text := searchables[message].text()) != text)
    ]
    return found, rows[-1][0] if rows else None


def change_message(db: sqlite3.Connection, message: int, change: Change) -> None:
    """Change what is stored of a message, and index it again."""
    found = read_searchables(db, [message]).get(message)
    indexed = indexed_pieces(db, message)
    before = found.pieces() if found else []
    if found is not None:
        remove_pieces(db, found, before, indexed)
    [derived] = db.execute("SELECT derived FROM messages WHERE message = ?", (message,)).fetchone()
    db.execute("UPDATE messages SET derived = ? WHERE message = ?", (change(derived), message))
    db.executemany(
        "UPDATE outputs SET argument = ?, record = ? WHERE output = ?",
        [
            (argument and change(argument), change(record), output)
            for output, argument, record in db.execute(
                "SELECT output, argument, record FROM outputs JOIN messages USING (session, seq) WHERE message = ?",
                (message,),
            ).fetchall()
        ],
    )
    if found is not None:
        _index_again(db, found, change, complete=indexed == len(before))


def _index_again(db: sqlite3.Connection, found: StoredText, change: Change, *, complete: bool) -> None:
    calls = {block: (tool, change(argument)) for block, (tool, argument) in found.calls.items()}
    text = change(found.text())
    body = put_together(found.body, found.blobs, found.source)
    stored = referring(text, sources(body, calls.values()))
    db.execute("UPDATE messages SET search_text = ? WHERE message = ?", (stored, found.message))
    if complete:
        new = list(pieces(documents(text, found.blocks, calls)))
        insert_pieces(db, found.session, found.seq, found.message, found.blocks, new)
    elif not is_queued(db, found.message):
        queue(db, found.message)
