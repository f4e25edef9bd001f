"""Messages made ready for their rows, before a transaction begins. Pure, and the same for every store."""
