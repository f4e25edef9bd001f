"""Text: cut, sanitized, searched and paged, whatever it is about."""
