-- How the proxy recognizes a client that goes on with a session that was deleted: see deleted_sessions.py. There are few,
-- so that the table is not divided.
CREATE TABLE deleted_sessions (
    owner text COLLATE "C" NOT NULL,
    deleted_at text NOT NULL,
    record text NOT NULL
);
CREATE INDEX deleted_sessions_by_time ON deleted_sessions (owner, deleted_at);
