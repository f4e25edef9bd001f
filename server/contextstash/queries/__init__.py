"""Queries: use cases that only read."""
