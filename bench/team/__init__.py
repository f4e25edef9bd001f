"""Two server processes on one PostgreSQL under many concurrent sessions, with a killed server and a restart."""
