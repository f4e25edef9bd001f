"""Tool outputs: what each is, which of its lines are relevant, and how one that is too long is cut."""
