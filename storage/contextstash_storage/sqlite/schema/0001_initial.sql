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
    replay_seq INTEGER,
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
    body BLOB NOT NULL,
    derived TEXT NOT NULL,
    created_at TEXT NOT NULL,
    search_text BLOB,
    UNIQUE (session, seq)
);
CREATE INDEX messages_by_fingerprint ON messages (session, fingerprint, seq);
CREATE UNIQUE INDEX messages_by_key ON messages (session, key) WHERE key IS NOT NULL;

CREATE TABLE blobs (
    blob INTEGER PRIMARY KEY,
    sha256 BLOB NOT NULL UNIQUE,
    content BLOB NOT NULL
);
CREATE TABLE message_blobs (
    message INTEGER NOT NULL REFERENCES messages (message) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    path TEXT NOT NULL,
    blob INTEGER NOT NULL REFERENCES blobs (blob),
    PRIMARY KEY (message, number)
) WITHOUT ROWID;
CREATE INDEX message_blobs_by_blob ON message_blobs (blob);

CREATE TABLE outputs (
    session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
    handle TEXT NOT NULL,
    seq INTEGER NOT NULL,
    block INTEGER NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (session, seq, block)
) WITHOUT ROWID;
CREATE UNIQUE INDEX outputs_by_handle ON outputs (handle, session);

CREATE TABLE edits (
    session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
    edit_id INTEGER NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (session, edit_id)
) WITHOUT ROWID;

CREATE TABLE events (
    event_id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
    record TEXT NOT NULL
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

CREATE TABLE cursors (
    owner TEXT NOT NULL,
    source TEXT NOT NULL,
    session INTEGER REFERENCES sessions (session) ON DELETE CASCADE,
    record TEXT NOT NULL,
    PRIMARY KEY (owner, source)
) WITHOUT ROWID;
CREATE INDEX cursors_by_session ON cursors (session);

CREATE VIRTUAL TABLE search_index USING fts5 (text, content = '', tokenize = 'porter unicode61');
