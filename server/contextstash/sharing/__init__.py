"""Sharing: a session as a file that a person reads, or that another contextstash takes in."""
