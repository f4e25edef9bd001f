"""The session store: what is kept, and where."""
