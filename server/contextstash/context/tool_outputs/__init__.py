"""Tool outputs: what one is, which of its lines matter, and how one that is too long is shown."""
