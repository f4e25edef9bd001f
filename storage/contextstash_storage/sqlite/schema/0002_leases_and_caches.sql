CREATE TABLE leases (
    session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
    purpose TEXT NOT NULL,
    holder TEXT NOT NULL,
    expires_at REAL NOT NULL,
    PRIMARY KEY (session, purpose)
) WITHOUT ROWID;

CREATE TABLE cached_summaries (
    session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
    key TEXT NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (session, key)
) WITHOUT ROWID;

ALTER TABLE events ADD COLUMN kind TEXT;
UPDATE events SET kind = json_extract(record, '$.kind');
CREATE INDEX events_by_kind ON events (session, kind, event_id);
