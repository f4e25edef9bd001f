"""The session store in PostgreSQL, for several machines: the extra `postgres` of the package."""
