"""A whole request to a model API: its text, edits of that text, and the fields that affect its messages."""
