-- How the proxy recognizes a client that goes on with a session that was deleted: see deleted_sessions.py.
CREATE TABLE deleted_sessions (owner TEXT NOT NULL, deleted_at TEXT NOT NULL, record TEXT NOT NULL);
CREATE INDEX deleted_sessions_by_time ON deleted_sessions (owner, deleted_at);
