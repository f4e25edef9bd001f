"""Pairing: messages of a list that belong together."""
