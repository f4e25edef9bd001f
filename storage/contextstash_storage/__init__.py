"""The session store: its protocol, its records, and the SQLite implementation."""
