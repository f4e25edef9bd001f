"""The session store: plain functions on a transaction, the same for SQLite and PostgreSQL, in eight tables."""
