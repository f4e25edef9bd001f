"""One request of a client: what is sent in its place, and why nothing else of it changes."""
