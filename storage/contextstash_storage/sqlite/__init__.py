"""The embedded session store: one SQLite file."""
