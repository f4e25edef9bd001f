-- The tokens that clients of a server over HTTP present: a hash of each, never the token itself. They are looked up
-- before their owner is known, so that the table is not divided.
CREATE TABLE tokens (
    sha256 bytea PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    owner text COLLATE "C" NOT NULL,
    scopes text NOT NULL,
    created_at text NOT NULL,
    expires_at text,
    last_used_at text
);
