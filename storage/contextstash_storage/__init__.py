"""The session store: plain functions on a transaction, for SQLite and PostgreSQL, in seven tables and an index."""
