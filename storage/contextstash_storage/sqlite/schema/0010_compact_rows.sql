-- What later messages of a session are compressed with, see dictionaries.py.
CREATE TABLE dictionaries (
    dictionary INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (session) ON DELETE CASCADE,
    mark INTEGER NOT NULL,
    content BLOB NOT NULL
);
CREATE UNIQUE INDEX dictionaries_by_session ON dictionaries (session, mark);

-- Bodies that take much of a page: among the other rows they would leave gaps. `messages.body` is empty then.
CREATE TABLE large_bodies (
    message INTEGER PRIMARY KEY REFERENCES messages (message) ON DELETE CASCADE,
    content BLOB NOT NULL
);

-- Microseconds since 1970, in UTC. Rows without it have the text `created_at`, which is empty in the others.
ALTER TABLE messages ADD COLUMN created INTEGER;

-- Former rows have all of it as JSON in `record`, later ones in these columns; their `record` is empty.
ALTER TABLE outputs ADD COLUMN tool TEXT;
ALTER TABLE outputs ADD COLUMN argument TEXT;
ALTER TABLE outputs ADD COLUMN tokens INTEGER;
ALTER TABLE outputs ADD COLUMN characters INTEGER;
ALTER TABLE outputs ADD COLUMN lines INTEGER;
ALTER TABLE outputs ADD COLUMN sha256 BLOB;
ALTER TABLE outputs ADD COLUMN is_error INTEGER;
