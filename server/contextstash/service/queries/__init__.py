"""Queries: everything that only reads, and the transfer of whole sessions."""
