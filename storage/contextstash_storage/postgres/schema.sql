-- There are no foreign keys: every writer locks the row of its session first, and a deletion removes that row first.
-- Text is compared by its bytes (COLLATE "C"), as in SQLite: times in ISO format are in order then, and prefixes are
-- found by an index.
CREATE SEQUENCE message_numbers;
CREATE SEQUENCE log_numbers;

CREATE TABLE sessions (
    owner text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    agent text,
    model text,
    format text NOT NULL,
    title text,
    source text,
    settings text NOT NULL DEFAULT '{}',
    parent_session_id text COLLATE "C",
    created_at text COLLATE "C" NOT NULL,
    updated_at text COLLATE "C" NOT NULL,
    last_message_at text COLLATE "C",
    counters text NOT NULL DEFAULT '{}',
    messages bigint NOT NULL DEFAULT 0,
    appended bigint NOT NULL DEFAULT 0,
    indexed_entries bigint NOT NULL DEFAULT 0,
    indexed_words bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (owner, session_id)
);
CREATE INDEX sessions_by_change ON sessions (owner, updated_at, session_id);
CREATE INDEX sessions_by_message ON sessions (owner, coalesce(last_message_at, updated_at), session_id);
CREATE INDEX sessions_by_parent ON sessions (owner, parent_session_id) WHERE parent_session_id IS NOT NULL;

-- `message` numbers the messages of all sessions in the order in which they were stored. `token_types` and `type_tokens`
-- are the tokens of its blocks by type.
CREATE TABLE messages (
    owner text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    message bigint NOT NULL,
    fingerprint bytea NOT NULL,
    key bytea,
    derived text NOT NULL,
    created_at text COLLATE "C" NOT NULL,
    checksum bigint NOT NULL,
    role text NOT NULL,
    kind text NOT NULL,
    agent_visible boolean NOT NULL,
    has_calls boolean NOT NULL,
    token_types text[] NOT NULL,
    type_tokens bigint[] NOT NULL,
    PRIMARY KEY (owner, session_id, seq)
);
CREATE UNIQUE INDEX messages_by_key ON messages (owner, session_id, key) WHERE key IS NOT NULL;

-- Segments of neighbouring messages, see segments.py: `messages` from `first_seq` on.
CREATE TABLE bodies (
    owner text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    first_seq bigint NOT NULL,
    messages bigint NOT NULL,
    "full" integer NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (owner, session_id, first_seq)
);
ALTER TABLE bodies ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE INDEX bodies_not_full ON bodies (owner, session_id, first_seq) WHERE "full" = 0;

CREATE TABLE outputs (
    owner text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    block integer NOT NULL,
    handle text COLLATE "C" NOT NULL,
    tool text COLLATE "C" NOT NULL,
    argument text NOT NULL,
    tokens bigint NOT NULL,
    characters bigint NOT NULL,
    record text NOT NULL,
    PRIMARY KEY (owner, session_id, seq, block)
);
CREATE UNIQUE INDEX outputs_of_session ON outputs (owner, session_id, handle);
CREATE INDEX outputs_by_handle ON outputs (owner, handle);

CREATE TABLE edits (
    owner text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    edit_id bigint NOT NULL,
    kind text NOT NULL,
    summary_id text COLLATE "C",
    record text NOT NULL,
    checksum bigint NOT NULL,
    PRIMARY KEY (owner, session_id, edit_id)
);
CREATE INDEX edits_by_summary ON edits (owner, summary_id) WHERE summary_id IS NOT NULL;

CREATE TABLE events (
    owner text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    event_id bigint NOT NULL DEFAULT nextval('log_numbers'),
    kind text NOT NULL,
    record text NOT NULL,
    PRIMARY KEY (owner, session_id, event_id)
);
CREATE INDEX events_by_kind ON events (owner, session_id, kind, event_id);

CREATE TABLE calls (
    owner text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    call_id bigint NOT NULL DEFAULT nextval('log_numbers'),
    reply bytea,
    purpose text NOT NULL,
    day text COLLATE "C" NOT NULL,
    model text COLLATE "C",
    prompt_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    cache_write_1h_tokens bigint NOT NULL,
    cost double precision,
    record text NOT NULL,
    PRIMARY KEY (owner, session_id, call_id)
);
CREATE UNIQUE INDEX calls_by_reply ON calls (owner, session_id, reply) WHERE reply IS NOT NULL;

CREATE TABLE cursors (
    owner text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    record text NOT NULL,
    PRIMARY KEY (owner, session_id, source)
);
CREATE INDEX cursors_by_source ON cursors (owner, source);

-- `process` is an advisory lock that the holder's process keeps for as long as it is connected.
CREATE TABLE leases (
    owner text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    purpose text COLLATE "C" NOT NULL,
    holder text NOT NULL,
    process bigint NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (owner, session_id, purpose)
);

CREATE TABLE cached_summaries (
    owner text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    record text NOT NULL,
    PRIMARY KEY (owner, session_id, key)
);

CREATE TABLE batches (
    owner text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    batch_id text COLLATE "C" NOT NULL,
    first_seq bigint NOT NULL,
    count bigint NOT NULL,
    fingerprint bytea NOT NULL,
    PRIMARY KEY (owner, session_id, batch_id)
);

CREATE TABLE requests (
    owner text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    request bigint NOT NULL,
    record text NOT NULL,
    PRIMARY KEY (owner, session_id, request)
);

CREATE TABLE declared_parts (
    owner text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    fingerprint bytea NOT NULL,
    content bytea NOT NULL,
    record text NOT NULL,
    PRIMARY KEY (owner, session_id, version)
);
CREATE UNIQUE INDEX declared_parts_by_fingerprint ON declared_parts (owner, session_id, fingerprint);

CREATE TABLE proxied_sessions (
    owner text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    last_at double precision NOT NULL,
    record text NOT NULL,
    PRIMARY KEY (owner, session_id)
);
CREATE INDEX proxied_sessions_by_time ON proxied_sessions (owner, last_at);

-- English stems, and no stop words: as SQLite's `porter unicode61`.
CREATE TEXT SEARCH DICTIONARY contextstash_stem (TEMPLATE = snowball, LANGUAGE = english);
CREATE TEXT SEARCH CONFIGURATION contextstash (COPY = pg_catalog.simple);
ALTER TEXT SEARCH CONFIGURATION contextstash
    ALTER MAPPING FOR asciiword, word, numword WITH contextstash_stem;

-- A row is a piece of a text, call or output. `pair` is what a call and its output have in common; `words` is how many
-- words the piece has; the vector holds the words of the call with weight A, of the text with D, and marks of the place.
CREATE TABLE search_entries (
    owner text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    block integer NOT NULL,
    piece integer NOT NULL,
    message bigint NOT NULL,
    kind smallint NOT NULL,
    pair bigint,
    words bigint NOT NULL,
    vector tsvector NOT NULL,
    PRIMARY KEY (owner, session_id, seq, block, piece)
);
CREATE INDEX search_entries_by_word ON search_entries USING gin (vector);
CREATE INDEX search_entries_by_pair ON search_entries (owner, session_id, pair) WHERE pair IS NOT NULL;

-- Parts of paths and commands are found faster with pg_trgm; without it, all calls of the owner are looked at.
DO $$ BEGIN
    CREATE EXTENSION IF NOT EXISTS pg_trgm;
    CREATE INDEX outputs_by_part ON outputs USING gin (argument gin_trgm_ops);
EXCEPTION WHEN undefined_file OR feature_not_supported OR insufficient_privilege OR undefined_object THEN
    RAISE NOTICE 'pg_trgm is not available: parts of paths are found without an index';
END $$;

-- The tokens that clients of a server over HTTP present: a hash of each, never the token itself.
CREATE TABLE tokens (
    sha256 bytea PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    owner text COLLATE "C" NOT NULL,
    scopes text NOT NULL,
    created_at text NOT NULL,
    expires_at text,
    last_used_at text
);

-- How the proxy recognizes a client that goes on with a session that was deleted: see deleted_sessions.py.
CREATE TABLE deleted_sessions (
    owner text COLLATE "C" NOT NULL,
    deleted_at text NOT NULL,
    record text NOT NULL
);
CREATE INDEX deleted_sessions_by_time ON deleted_sessions (owner, deleted_at);
