-- Times of messages are microseconds since 1970, or texts with their zone if that is not UTC.
CREATE TABLE sessions (
    session_id TEXT NOT NULL,
    owner TEXT NOT NULL,
    agent TEXT,
    model TEXT,
    format TEXT,
    title TEXT,
    source TEXT,
    settings TEXT NOT NULL DEFAULT '{}',
    parent_session_id TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    counters TEXT NOT NULL DEFAULT '{}',
    session INTEGER PRIMARY KEY,
    UNIQUE (owner, session_id)
);
CREATE INDEX sessions_by_change ON sessions (owner, updated_at, session);
CREATE TABLE messages (
    message INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    fingerprint BLOB NOT NULL,
    key TEXT,
    derived TEXT NOT NULL,
    created_at NOT NULL,
    checksum INTEGER NOT NULL,
    UNIQUE (session, seq)
);
CREATE UNIQUE INDEX messages_by_key ON messages (session, key) WHERE key IS NOT NULL;
-- Segments of neighbouring messages, see segments.py: `messages` from `first_seq` on. Tables have row numbers, so that new
-- rows come last and stay where they are: in one ordered by key rows move from page to page, and SQLite leaves copies in
-- the unused part of pages, which no deletion overwrites.
CREATE TABLE bodies (
    body INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
    first_seq INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    "full" INTEGER NOT NULL,
    content BLOB NOT NULL,
    UNIQUE (session, first_seq)
);
CREATE INDEX bodies_not_full ON bodies (session, first_seq) WHERE "full" = 0;
CREATE TABLE events (
    event_id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
    record TEXT NOT NULL,
    kind TEXT
);
CREATE INDEX events_by_session ON events (session, event_id);
CREATE TABLE calls (
    call_id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
    reply TEXT,
    record TEXT NOT NULL
);
CREATE INDEX calls_by_session ON calls (session, call_id);
CREATE UNIQUE INDEX calls_by_reply ON calls (session, reply) WHERE reply IS NOT NULL;
CREATE INDEX events_by_kind ON events (session, kind, event_id);
CREATE TABLE batches (
    session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
    batch_id TEXT NOT NULL,
    place INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    count INTEGER NOT NULL,
    fingerprint BLOB NOT NULL,
    PRIMARY KEY (session, batch_id, place)
) WITHOUT ROWID;
CREATE TABLE leases (
    session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
    purpose TEXT NOT NULL,
    holder TEXT NOT NULL,
    taken_at REAL NOT NULL,
    seconds REAL NOT NULL,
    PRIMARY KEY (session, purpose)
) WITHOUT ROWID;
CREATE TABLE requests (
    session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
    request INTEGER NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (session, request)
) WITHOUT ROWID;
CREATE TABLE declared_parts (
    session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
    version INTEGER NOT NULL,
    fingerprint BLOB NOT NULL,
    content BLOB NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (session, version)
) WITHOUT ROWID;
CREATE UNIQUE INDEX declared_parts_by_fingerprint ON declared_parts (session, fingerprint);
CREATE TABLE proxied_sessions (
    session INTEGER PRIMARY KEY REFERENCES sessions (session) ON DELETE CASCADE,
    last_at REAL NOT NULL,
    record TEXT NOT NULL
);
CREATE INDEX proxied_sessions_by_time ON proxied_sessions (last_at);
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
CREATE TABLE search_queue (message INTEGER PRIMARY KEY);
CREATE TABLE outputs (
    output INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
    handle TEXT NOT NULL,
    seq INTEGER NOT NULL,
    block INTEGER NOT NULL,
    record TEXT NOT NULL,
    tool TEXT,
    argument TEXT,
    tokens INTEGER,
    characters INTEGER,
    lines INTEGER,
    sha256 BLOB,
    is_error INTEGER,
    UNIQUE (session, seq, block)
);
CREATE UNIQUE INDEX outputs_by_handle ON outputs (handle, session);
CREATE TABLE edits (
    edit INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
    edit_id INTEGER NOT NULL,
    record TEXT NOT NULL,
    checksum INTEGER NOT NULL,
    UNIQUE (session, edit_id)
);
CREATE TABLE cached_summaries (
    summary INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
    key TEXT NOT NULL,
    record TEXT NOT NULL,
    UNIQUE (session, key)
);
CREATE TABLE cursors (
    cursor INTEGER PRIMARY KEY,
    owner TEXT NOT NULL,
    source TEXT NOT NULL,
    session INTEGER REFERENCES sessions (session) ON DELETE CASCADE,
    record TEXT NOT NULL,
    UNIQUE (owner, source)
);
CREATE INDEX cursors_by_session ON cursors (session);
CREATE TABLE tokens (
    token INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    sha256 BLOB NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    scopes TEXT NOT NULL,
    created_at TEXT NOT NULL,
    expires_at TEXT,
    last_used_at TEXT
);
CREATE TABLE deleted_sessions (owner TEXT NOT NULL, deleted_at TEXT NOT NULL, record TEXT NOT NULL);
CREATE INDEX deleted_sessions_by_time ON deleted_sessions (owner, deleted_at);
CREATE VIRTUAL TABLE search_pieces USING fts5 (text, call, place, content = '', contentless_delete = 1,
    tokenize = 'porter unicode61');
