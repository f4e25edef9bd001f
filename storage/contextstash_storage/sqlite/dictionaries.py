"""The dictionaries of sessions: messages resemble those before them, and with 24 KB of these known beforehand they are
compressed to two thirds. Each session has its own dictionary, which never changes, and is deleted with it."""

from __future__ import annotations

import sqlite3
from typing import TypeVar

from contextstash_storage.codec.bodies import (
    CONSTANT,
    OF_SESSION,
    Dictionary,
    checksum,
    session_dictionary,
    unpacked,
)
from contextstash_storage.errors import StoreError
from contextstash_storage.sqlite.rows import BODY

LOOKED_AT_EVERY = 16
"""After how many messages it is looked whether a session is long enough for a dictionary."""

NEWEST = 512
"""How many messages of a session a dictionary may be made of."""

MIN_PACKED = 16_000
"""Bytes of a session's packed bodies from which it gets a dictionary, which takes 7 to 10 KB: about 48 KB of text. With
32 KB short sessions grew, with 64 KB those of 300 messages gained less (recorded sessions)."""

CONTENT = 24_000
"""Bytes of a dictionary. Of 16, 24 and 28 KB: within 2 % of each other."""

MAX_KNOWN = 16
"""Dictionaries kept in memory, 30 KB each, and 0.3 MB of those that compress."""

_known: dict[int, Dictionary] = {}

Value = TypeVar("Value")


def dictionary_of(db: sqlite3.Connection, session: int) -> Dictionary | None:
    """The dictionary of a session, if it has one that is not damaged: messages that need it raise StoreError when they
    are read, all others can be read and written."""
    row = db.execute("SELECT dictionary, mark FROM dictionaries WHERE session = ?", (session,)).fetchone()
    if row is None:
        return None
    number, mark = row
    return _known.get(mark) or _read(db, number, mark)


def _read(db: sqlite3.Connection, number: int, mark: int) -> Dictionary | None:
    row = db.execute("SELECT cast(content AS BLOB) FROM dictionaries WHERE dictionary = ?", (number,)).fetchone()
    try:
        content = unpacked(row[0]) if row else b""
    except StoreError:
        return None
    is_whole = mark >= 0 or mark == checksum(content)  # one of 0 or more is none, but a random number
    return remembered(_known, mark, session_dictionary(mark, content), MAX_KNOWN) if row and is_whole else None


def remembered(known: dict[int, Value], mark: int, value: Value, most: int) -> Value:
    """Keep a value in memory, and of the others the newest."""
    for other in list(known)[: max(0, len(known) + 1 - most)]:
        known.pop(other, None)
    known[mark] = value
    return value


def is_due(before: int, after: int) -> bool:
    """Whether it is looked for a dictionary, when a session without one has grown from so many messages to so many."""
    return before // LOOKED_AT_EVERY != after // LOOKED_AT_EVERY


def make_dictionary(db: sqlite3.Connection, session: int, messages: int) -> Dictionary | None:
    """Make a dictionary for the messages to come, if a session of so many messages is long enough."""
    newest = (session, messages - NEWEST)
    some = "FROM messages WHERE session = ? AND seq >= ?"
    sizes = f"SELECT sum(length({BODY})), max(substr({BODY}, 1, 1) = ?) {some}"
    size, had_one = db.execute(sizes, (OF_SESSION, *newest)).fetchone()
    if (size or 0) < MIN_PACKED or had_one:  # with another than theirs, messages would be read as other words
        return None
    content = b""
    for (body,) in db.execute(f"SELECT {BODY} {some} ORDER BY seq DESC", newest):
        content = unpacked(body) + content
        if len(content) >= CONTENT:
            break
    content = content[-CONTENT:]
    mark = checksum(content)
    db.execute(
        "INSERT INTO dictionaries (session, mark, content) VALUES (?, ?, ?)", (session, mark, CONSTANT.packed(content))
    )
    return session_dictionary(mark, content)
