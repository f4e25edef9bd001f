"""How much of a database file is used, and by which session."""

from __future__ import annotations

import sqlite3

_STORED = """
WITH stored AS (
    SELECT session, length(body) + length(derived) + ifnull(length(search_text), 0) AS bytes FROM messages
    UNION ALL SELECT session, length(content) FROM large_bodies JOIN messages USING (message)
    UNION ALL SELECT session, length(content) FROM message_blobs JOIN blobs USING (blob) JOIN messages USING (message)
    UNION ALL SELECT session, length(content) FROM packs
    UNION ALL SELECT session, length(record) FROM edits
)
SELECT owner = ?, session_id, ifnull(sum(bytes), 0), iif(
    unindexed IS NULL, ifnull(sum(bytes), 0) + ifnull(counters ->> '$.appended', 0) / 2, ifnull(sum(bytes), 0) / 2
) + 1
FROM sessions LEFT JOIN stored USING (session) GROUP BY session
"""
"""Of each session the bytes of its values, and its part of all else, which is mostly the search index: that takes as
much as the values and half a byte for each token; without the index, all else is half of the values. (Of recorded
sessions; their 10,000 messages are counted in 60 ms.)"""


def used_bytes(db: sqlite3.Connection) -> int:
    """The bytes of the file without its free pages, which later messages fill."""
    names = ("page_count", "freelist_count", "page_size")
    pages, free, size = (int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in names)  # SQLCipher's is a text
    return (pages - free) * size


def session_sizes(db: sqlite3.Connection, owner: str) -> dict[str, int]:
    """The bytes that each of the owner's sessions takes, which are all that are used if the owner is the only one."""
    rows = db.execute(_STORED, (owner,)).fetchall()
    others = max(0, used_bytes(db) - sum(held for _, _, held, _ in rows)) / max(1, sum(part for *_, part in rows))
    return {name: held + round(others * part) for is_own, name, held, part in rows if is_own}
