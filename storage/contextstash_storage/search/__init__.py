"""What search indexes, how a query is read, and how matches are ranked. Pure, and the same for every store."""
