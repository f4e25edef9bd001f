"""Old sessions in PostgreSQL that are taken out of the search index, half of a database, and brought back into it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import Any

from contextstash_storage.codec.record_json import blocks_of
from contextstash_storage.postgres.connection import Connection
from contextstash_storage.postgres.dialect import OF_SESSION
from contextstash_storage.postgres.search_index import INSERT, CallsBefore, entry_rows, words_of
from contextstash_storage.search.searchable import Searchable
from contextstash_storage.sql.steps import Key

AT_ONCE = 200
"""Messages whose texts are in memory at a time: some 200 kB, at most 200 MB."""

_MARK = f"UPDATE sessions SET unindexed = $3 WHERE {OF_SESSION} AND unindexed <> $3 RETURNING messages"

_SEARCHABLE = f"""
SELECT seq, message, derived, has_calls, search_text, body, ARRAY(
    SELECT ROW (path, content) FROM message_blobs AS b JOIN blobs USING (owner, session_id, sha256)
    WHERE b.owner = $1 AND b.session_id = $2 AND b.seq = messages.seq ORDER BY number
), (
    SELECT coalesce(json_agg(json_build_array(block, tool, argument) ORDER BY block), '[]')::text FROM outputs AS o
    WHERE o.owner = $1 AND o.session_id = $2 AND o.seq = messages.seq
) FROM messages WHERE {OF_SESSION} AND seq BETWEEN $3 AND $4 AND search_text IS NOT NULL ORDER BY seq
"""


async def take_out(db: Connection, key: Key) -> bool:
    """Take a session out of the index; False if it is not in it."""
    if await db.fetchval(_MARK, *key, True) is None:
        return False
    await db.execute(f"DELETE FROM search_entries WHERE {OF_SESSION}", *key)
    await db.execute(f"UPDATE sessions SET indexed_entries = 0, indexed_words = 0 WHERE {OF_SESSION}", *key)
    return True


async def index_again(db: Connection, key: Key) -> bool:
    """Bring a session back into the index; False if it is in it."""
    count = await db.fetchval(_MARK, *key, False)
    calls = CallsBefore()
    for first in range(0, count or 0, AT_ONCE):
        rows = await db.fetch(_SEARCHABLE, *key, first, first + AT_ONCE - 1)
        found = await asyncio.to_thread(_entries, key, rows, calls)
        await db.executemany(INSERT, found)
        await db.execute(
            "UPDATE sessions SET indexed_entries = indexed_entries + $3, indexed_words = indexed_words + $4"
            f" WHERE {OF_SESSION}",
            *key,
            len(found),
            words_of(found),
        )
    return count is not None


def _entries(key: Key, rows: Iterable[Sequence[Any]], calls: CallsBefore) -> list[tuple[object, ...]]:
    """The rows of the index for stored messages, which come in order."""
    made: list[tuple[object, ...]] = []
    for seq, message, derived, has_calls, text, body, blobs, outputs in rows:
        of_outputs = {block: (tool, argument) for block, tool, argument in json.loads(outputs)}
        found = Searchable(blocks_of(derived), of_outputs, text, body, tuple(blobs))
        made += entry_rows(key, seq, message, found.blocks, found.pieces(), calls)
        if has_calls:
            calls.add(seq, message, derived)
    return made


async def unindexed(db: Connection, owner: str) -> list[str]:
    """The ids of the owner's sessions that are not in the index."""
    rows = await db.fetch("SELECT session_id FROM sessions WHERE owner = $1 AND unindexed ORDER BY 1", owner)
    return [row[0] for row in rows]
