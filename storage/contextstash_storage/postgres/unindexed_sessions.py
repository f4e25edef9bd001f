"""Old sessions in PostgreSQL that are taken out of the search index, half of a database, and brought back into it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from contextstash_storage.codec.record_json import blocks_of
from contextstash_storage.postgres.dialect import OF_SESSION
from contextstash_storage.postgres.messages import LARGE_STRINGS
from contextstash_storage.postgres.search_index import INSERT, CallsBefore, entry_rows, words_of
from contextstash_storage.postgres.sessions import Indexed, add_indexed
from contextstash_storage.search.searchable import Searchable
from contextstash_storage.sql.steps import Aside, Key, Repeated, Statement, Steps

AT_ONCE = 200
"""Messages whose texts are in memory at a time: some 200 kB, at most 200 MB."""

_MARK = f"UPDATE sessions SET unindexed = $3 WHERE {OF_SESSION} AND unindexed <> $3 RETURNING messages"

_SEARCHABLE = f"""
SELECT seq, message, derived, has_calls, search_text, body, {LARGE_STRINGS}, (
    SELECT coalesce(json_agg(json_build_array(block, tool, argument) ORDER BY block), '[]')::text FROM outputs AS o
    WHERE o.owner = $1 AND o.session_id = $2 AND o.seq = m.seq
) FROM messages AS m WHERE {OF_SESSION} AND seq BETWEEN $3 AND $4 AND search_text IS NOT NULL ORDER BY seq
"""


def take_out(key: Key) -> Steps[bool]:
    """Take a session out of the index; False if it is not in it."""
    if not (yield Statement(_MARK, (*key, True))):
        return False
    yield Statement("DELETE FROM search_entries WHERE {of}", key)
    yield Statement("UPDATE sessions SET indexed_entries = 0, indexed_words = 0 WHERE {of}", key)
    return True


def index_again(key: Key) -> Steps[bool]:
    """Bring a session back into the index; False if it is in it."""
    marked = yield Statement(_MARK, (*key, False))
    calls = CallsBefore()
    for first in range(0, marked[0][0] if marked else 0, AT_ONCE):
        rows = yield Statement(_SEARCHABLE, (*key, first, first + AT_ONCE - 1))
        found = yield Aside(partial(_entries, key, rows, calls))
        yield Repeated(INSERT, found)
        yield from add_indexed(key, Indexed(len(found), words_of(found)))
    return bool(marked)


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
