"""The files of a session, from its tool calls: how each was used, and its text as far as it is known."""
