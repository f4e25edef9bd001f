CREATE TABLE batches (
    session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
    batch_id TEXT NOT NULL,
    place INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    count INTEGER NOT NULL,
    fingerprint BLOB NOT NULL,
    PRIMARY KEY (session, batch_id, place)
) WITHOUT ROWID;

DROP INDEX messages_by_fingerprint;
ALTER TABLE sessions DROP COLUMN replay_seq;
