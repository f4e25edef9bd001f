"""Queries: use cases that only read, and export and import of whole sessions."""
