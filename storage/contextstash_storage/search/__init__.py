"""Search: the indexed documents, queries, and the ranking of matches. Pure, and the same for every store."""
