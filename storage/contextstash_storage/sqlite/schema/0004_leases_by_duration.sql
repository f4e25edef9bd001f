DROP TABLE leases;
CREATE TABLE leases (
    session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
    purpose TEXT NOT NULL,
    holder TEXT NOT NULL,
    taken_at REAL NOT NULL,
    seconds REAL NOT NULL,
    PRIMARY KEY (session, purpose)
) WITHOUT ROWID;
