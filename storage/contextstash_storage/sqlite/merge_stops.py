"""Places at which merging the search index can stop after a large deletion.

FTS5 merges until it has written a number of pages. Deleted words are read but not written, so after the deletion of
much text one step reads all of it: 0.5 s of CPU time for 10 MB, for which others wait. Therefore rows are inserted that
are written: each is one word, often enough to fill pages, and the words are those that begin every STOP_PAGES-th page
of the index. When the index is merged, they are deleted, and it is merged once more, now writing nearly all it reads.

FTS5 also merges at commits, and reads as much for it: that is suspended until the deletion is finished. The suspension
is stored in the database, so the next process sees that a deletion of much text was begun.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence

from contextstash_storage.codec.derived_form import fields_of, text_size
from contextstash_storage.sqlite.hidden_sessions import DELETED_OWNER

STOP_PAGES = 32
"""Pages of the index, of 4 KB, for each of which there is a stop, so that at most twice as many are read between two
stops: about 20 ms of merging."""

STOP_REPETITIONS = 13_000
"""How often a stop's word is in it: that fills three pages, and a merge of one page ends after the second."""

MERGED_PAGES = 1
"""Pages that a step writes at least while stops are in the index."""

FIRST_STOP = 2**40
"""The first row number of stops: above those of all entries."""

MIN_CHARACTERS = 2_000_000
"""Deleted text from which stops are needed: to merge so much takes about 100 ms."""

_SUSPENDED = {"automerge": 0, "crisismerge": 1_999, "usermerge": 16}
"""Nothing is merged at a commit, and if asked only what is 16 times on the same level: parts of deleted words alone,
which are written again, and none of the much larger parts that hold the text."""

_USUAL = {"automerge": 4, "crisismerge": 16, "usermerge": 4}
"""FTS5's own values: how many parts of the index of the same level are merged at a commit, how many are merged at once
whatever it costs, and how many if asked."""


def suspend_automatic_merge(db: sqlite3.Connection) -> None:
    """Let FTS5 merge nothing at commits, of any process, until it is resumed."""
    if not is_suspended(db):
        _configure(db, _SUSPENDED)


def resume_automatic_merge(db: sqlite3.Connection) -> None:
    if is_suspended(db):
        _configure(db, _USUAL)


def is_suspended(db: sqlite3.Connection) -> bool:
    """Whether a deletion of much text is not finished."""
    row = db.execute("SELECT v FROM search_pieces_config WHERE k = 'automerge'").fetchone()
    return row is not None and row[0] == 0


def _configure(db: sqlite3.Connection, values: dict[str, int]) -> None:
    db.executemany("INSERT INTO search_pieces (search_pieces, rank) VALUES (?, ?)", values.items())


def is_much(db: sqlite3.Connection) -> bool:
    """Whether there is so much text to delete that it cannot be merged in one step."""
    total = 0
    rows = db.execute("SELECT derived FROM messages JOIN sessions USING (session) WHERE owner = ?", (DELETED_OWNER,))
    for (derived,) in rows:
        total += text_size(fields_of(derived).get("blocks", ()))
        if total >= MIN_CHARACTERS:
            return True
    return False


def stop_words(db: sqlite3.Connection) -> list[str]:
    """The words at which merging shall be able to stop: only as much of each page's first word as sorts behind the stop
    before it. It may be a deleted word, and SQLite can leave a copy of a stop in the unused part of a page."""
    rows = db.execute("SELECT term FROM search_pieces_idx WHERE length(term) > 1 ORDER BY term").fetchall()
    words: list[str] = []
    before = ""
    for (term,) in rows[STOP_PAGES - 1 :: STOP_PAGES]:
        word = bytes(term)[1:].decode(errors="ignore")
        if word > before:
            words.append(next(word[:end] for end in range(1, len(word) + 1) if word[:end] > before))
            before = word
    return words


def insert_stops(db: sqlite3.Connection, words: Sequence[str], until: float) -> int:
    """Insert the first of these words as stops, for as long as a transaction may last; returns how many."""
    [last] = db.execute("SELECT max(entry) FROM search_stops").fetchone()
    first = FIRST_STOP if last is None else last + 1
    for number, word in enumerate(words):
        db.execute("INSERT INTO search_stops (entry, word) VALUES (?, ?)", (first + number, word))
        db.execute(
            "INSERT INTO search_pieces (rowid, place, call, text) VALUES (?, '', '', ?)", (first + number, _text(word))
        )
        if time.monotonic() > until:
            return number + 1
    return len(words)


def remove_stops(db: sqlite3.Connection, until: float) -> bool:
    """Remove stops for as long as a transaction may last; False if there are no more."""
    for entry, word in db.execute("SELECT entry, word FROM search_stops ORDER BY entry").fetchall():
        db.execute(
            "INSERT INTO search_pieces (search_pieces, rowid, place, call, text) VALUES ('delete', ?, '', '', ?)",
            (entry, _text(word)),
        )
        db.execute("DELETE FROM search_stops WHERE entry = ?", (entry,))
        if time.monotonic() > until:
            return True
    return False


def has_stops(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM search_stops LIMIT 1").fetchone() is not None


def _text(word: str) -> str:
    return f"{word} " * STOP_REPETITIONS
