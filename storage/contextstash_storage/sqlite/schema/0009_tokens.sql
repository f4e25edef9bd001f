-- The tokens that clients of a server over HTTP present: a hash of each, never the token itself.
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
