"""Exported sessions: files for people, or for another contextstash to import."""
