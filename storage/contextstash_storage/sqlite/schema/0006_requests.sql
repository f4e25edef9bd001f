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
