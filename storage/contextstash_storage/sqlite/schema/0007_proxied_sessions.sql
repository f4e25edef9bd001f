-- What the proxy must know of a session across restarts, and the totals of what it sent.
CREATE TABLE proxied_sessions (
    session INTEGER PRIMARY KEY REFERENCES sessions (session) ON DELETE CASCADE,
    last_at REAL NOT NULL,
    record TEXT NOT NULL
);
CREATE INDEX proxied_sessions_by_time ON proxied_sessions (last_at);
