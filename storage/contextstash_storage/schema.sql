-- The tables of both databases but that of the index's words (`WORDS_TABLE` of each); in PostgreSQL the types have its names. Each
-- row has a number, so that new rows come last and stay where they are: in a table ordered by key rows move from page to
-- page, and SQLite leaves copies of them in the unused part of pages, which no deletion overwrites. Times are
-- microseconds since 1970.
CREATE TABLE sessions (
    session INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    session_id TEXT NOT NULL,
    agent TEXT,
    model TEXT,
    format TEXT,
    title TEXT,
    source TEXT,
    settings TEXT NOT NULL,
    parent_session_id TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    last_message_at INTEGER,
    counters TEXT NOT NULL,
    entry_count INTEGER NOT NULL DEFAULT 0,
    word_count INTEGER NOT NULL DEFAULT 0,
    checksum INTEGER NOT NULL,
    UNIQUE (owner, session_id)
);
CREATE INDEX sessions_by_change ON sessions (owner, updated_at, session);

-- Segments of neighbouring messages, `messages` from `first_seq` on; see messages.py.
CREATE TABLE segments (
    segment INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    facts BLOB NOT NULL,
    contents BLOB NOT NULL,
    UNIQUE (session, first_seq)
);

-- The messages that are found by keys, by hashes of these.
CREATE TABLE keys (
    key INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    hash INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    UNIQUE (session, hash)
);

CREATE TABLE outputs (
    output INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    block INTEGER NOT NULL,
    handle TEXT NOT NULL,
    tool TEXT NOT NULL,
    argument TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    characters INTEGER NOT NULL,
    lines INTEGER NOT NULL,
    sha256 BLOB NOT NULL,
    is_error INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    UNIQUE (session, seq, block)
);
CREATE UNIQUE INDEX outputs_by_handle ON outputs (handle, session);

-- The log: edits, events, calls, requests and declared parts, each kind numbered from 1; see log.py.
CREATE TABLE log (
    entry INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    kind TEXT NOT NULL,
    number INTEGER NOT NULL,
    key TEXT,
    record BLOB NOT NULL,
    checksum INTEGER NOT NULL,
    UNIQUE (session, kind, number)
);
CREATE INDEX log_by_key ON log (session, kind, key, number) WHERE key IS NOT NULL;

-- What is replaced: how far sources are read, batches, leases, states of sessions, what the proxy knows, deleted
-- sessions and clients' tokens (these two of session 0); see notes.py.
CREATE TABLE notes (
    note INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    owner TEXT,
    record TEXT NOT NULL,
    begins REAL,
    ends REAL,
    UNIQUE (kind, key, session)
);
CREATE INDEX notes_by_session ON notes (session, kind);

-- Pieces of texts, calls and outputs that can be found; their words are in a table of each database's own (`words`),
-- under the same numbers. A call is under its output's message and block once that is there: `call` is the number of its
-- own place, `call_words` how many words it has.
CREATE TABLE entries (
    entry INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    block INTEGER NOT NULL,
    piece INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    call INTEGER,
    call_words INTEGER NOT NULL
);
CREATE INDEX entries_by_place ON entries (session, seq);
