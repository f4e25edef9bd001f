-- Bodies of old sessions, many in one value, see packs.py. `messages.body` has a reference to it.
CREATE TABLE packs (
    pack INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
    mark INTEGER NOT NULL,
    content BLOB NOT NULL
);
CREATE INDEX packs_by_session ON packs (session);

-- How many of a session's messages, from the first on, have been looked at for packing.
ALTER TABLE sessions ADD COLUMN packed INTEGER NOT NULL DEFAULT 0;
