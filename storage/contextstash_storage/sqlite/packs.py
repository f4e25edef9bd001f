"""Packs of old messages' bodies: found for the rows that refer to them, and made of a session that is read no more.

A packed body stays so: what is appended later stands alone, until the session is old again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from contextstash_storage.codec.bodies import OF_SESSION, Source, put_together, to_bytes, unpacked
from contextstash_storage.codec.packs import PACK_BYTES, Pack, pack_number, pack_of, reference
from contextstash_storage.codec.text_references import is_referring
from contextstash_storage.errors import StoreError
from contextstash_storage.sqlite.dictionaries import dictionary_of, remembered
from contextstash_storage.sqlite.rows import BODY, blobs_of, forget_body

MAX_KNOWN = 4
"""Packs kept in memory, 0.3 MB each: who reads an old session message by message mostly stays in one."""

_known: dict[int, Pack] = {}


def packs_of(db: sqlite3.Connection, bodies: Iterable[bytes]) -> dict[bytes, Pack]:
    """The packs that stored bodies refer to, by the stored body; none of one that stands alone, or whose pack is
    missing."""
    packs: dict[int, Pack | None] = {}
    found: dict[bytes, Pack] = {}
    for stored in bodies:
        number = pack_number(stored)
        if number is None:
            continue
        if number not in packs:
            packs[number] = _pack(db, number)
        if (pack := packs[number]) is not None:
            found[stored] = pack
    return found


def _pack(db: sqlite3.Connection, number: int) -> Pack | None:
    row = db.execute("SELECT mark FROM packs WHERE pack = ?", (number,)).fetchone()
    if row is None:
        return None
    [mark] = row
    if mark not in _known:
        [content] = db.execute("SELECT cast(content AS BLOB) FROM packs WHERE pack = ?", (number,)).fetchone()
        return remembered(_known, mark, Pack(mark, content), MAX_KNOWN)
    return _known[mark]


_DUE = "unindexed >= (counters ->> '$.messages') AND packed < (counters ->> '$.messages')"


def pack_some(db: sqlite3.Connection) -> bool:
    """Pack the next messages of a session that was taken out of the index; False if there are none."""
    due = db.execute(f"SELECT session, packed, counters ->> '$.messages' FROM sessions WHERE {_DUE} LIMIT 1").fetchone()
    if due is None:
        return False
    session, first, end = due
    bodies, next_seq = _next_bodies(db, session, first)
    if bodies:
        pack = pack_of(list(bodies.values()))
        values = (session, pack.mark, pack.content)
        number = db.execute("INSERT INTO packs (session, mark, content) VALUES (?, ?, ?)", values).lastrowid
        assert number is not None
        [newest] = db.execute("SELECT max(message) FROM messages").fetchone()
        for place, message in enumerate(bodies):
            forget_body(db, message)
            # Moved to the end of the table: where they were, the small rows would leave half of each page unused.
            moved = (newest + 1 + place, reference(number, place), message)
            db.execute("UPDATE messages SET message = ?, body = ? WHERE message = ?", moved)
    db.execute("UPDATE sessions SET packed = ? WHERE session = ?", (end if next_seq is None else next_seq, session))
    if next_seq is None:
        _forget_dictionary(db, session)
    return True


def _next_bodies(db: sqlite3.Connection, session: int, first: int) -> tuple[dict[int, bytes], int | None]:
    """The bodies for the next pack, by message, and the position of the first one for the pack after it, None if there
    is none. Bodies as large as a pack stand alone, and so do those that cannot be read, or that former versions' search
    texts refer to."""
    dictionary = dictionary_of(db, session)
    found: dict[int, bytes] = {}
    size = 0
    rows = db.execute(
        f"SELECT message, seq, search_text, {BODY} FROM messages WHERE session = ? AND seq >= ? ORDER BY seq",
        (session, first),
    )
    for message, seq, text, stored in rows:
        blobs = blobs_of(db, message)
        held = len(stored) + sum(len(content) for _, content in blobs)
        is_former = bool(blobs) and text is not None and not is_referring(text)
        body = None if is_former or held > PACK_BYTES else _whole(stored, blobs, dictionary)
        looked_at = held if body is None else len(body)
        if size and size + looked_at > PACK_BYTES:  # not more than this in one transaction, packed or not
            return found, seq
        size += looked_at
        if body is not None and len(body) <= PACK_BYTES:
            found[message] = body
    return found, None


def _whole(stored: bytes, blobs: list[tuple[str, bytes]], source: Source | None) -> bytes | None:
    """The JSON of a body with its large strings; None if it cannot be read."""
    try:
        return to_bytes(put_together(stored, blobs, source)) if blobs else unpacked(stored, source)
    except StoreError:
        return None


def _forget_dictionary(db: sqlite3.Connection, session: int) -> None:
    """Delete the dictionary of a session whose messages no longer need it; later ones get another."""
    needed = f"SELECT 1 FROM messages WHERE session = ?1 AND substr({BODY}, 1, 1) = ?2"
    db.execute(f"DELETE FROM dictionaries WHERE session = ?1 AND NOT EXISTS ({needed})", (session, OF_SESSION))
