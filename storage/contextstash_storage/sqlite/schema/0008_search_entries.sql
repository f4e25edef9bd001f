-- The former index, one row a message, is filled anew in the background.
DROP TABLE search_index;
CREATE TABLE search_entries (
    entry INTEGER PRIMARY KEY,
    message INTEGER NOT NULL,
    block INTEGER NOT NULL,
    piece INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    pair INTEGER
);
CREATE INDEX search_entries_by_message ON search_entries (message);
CREATE INDEX search_entries_by_pair ON search_entries (pair) WHERE pair IS NOT NULL;
CREATE VIRTUAL TABLE search_pieces USING fts5 (place, call, text, content = '', tokenize = 'porter unicode61');
CREATE TABLE search_queue (message INTEGER PRIMARY KEY);
-- Rows of the index that are there only while it is merged after a deletion, see merge_stops.py.
CREATE TABLE search_stops (entry INTEGER PRIMARY KEY, word TEXT NOT NULL);
INSERT INTO search_queue SELECT message FROM messages WHERE search_text IS NOT NULL;

-- Tables without a row number keep their rows in the order of their keys: rows move from page to page when others are
-- inserted between them, and SQLite leaves copies in the unused part of pages, which no deletion overwrites. In a table
-- with row numbers new rows come last and stay where they are.
ALTER TABLE outputs RENAME TO former_outputs;
CREATE TABLE outputs (
    output INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
    handle TEXT NOT NULL,
    seq INTEGER NOT NULL,
    block INTEGER NOT NULL,
    record TEXT NOT NULL,
    UNIQUE (session, seq, block)
);
INSERT INTO outputs (session, handle, seq, block, record)
SELECT session, handle, seq, block, record FROM former_outputs ORDER BY session, seq, block;
DROP TABLE former_outputs;
CREATE UNIQUE INDEX outputs_by_handle ON outputs (handle, session);

ALTER TABLE edits RENAME TO former_edits;
CREATE TABLE edits (
    edit INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
    edit_id INTEGER NOT NULL,
    record TEXT NOT NULL,
    UNIQUE (session, edit_id)
);
INSERT INTO edits (session, edit_id, record)
SELECT session, edit_id, record FROM former_edits ORDER BY session, edit_id;
DROP TABLE former_edits;

ALTER TABLE cached_summaries RENAME TO former_summaries;
CREATE TABLE cached_summaries (
    summary INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
    key TEXT NOT NULL,
    record TEXT NOT NULL,
    UNIQUE (session, key)
);
INSERT INTO cached_summaries (session, key, record) SELECT session, key, record FROM former_summaries;
DROP TABLE former_summaries;

DROP INDEX cursors_by_session;
ALTER TABLE cursors RENAME TO former_cursors;
CREATE TABLE cursors (
    cursor INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    source TEXT NOT NULL,
    session INTEGER REFERENCES sessions (session) ON DELETE CASCADE,
    record TEXT NOT NULL,
    UNIQUE (owner, source)
);
INSERT INTO cursors (owner, source, session, record) SELECT owner, source, session, record FROM former_cursors;
DROP TABLE former_cursors;
CREATE INDEX cursors_by_session ON cursors (session);
