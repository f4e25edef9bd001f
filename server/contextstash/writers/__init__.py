"""The writers of summaries: the host, a model, or contextstash itself."""
