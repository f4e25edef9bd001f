"""A session that ships with the package, and what contextstash does with it step by step."""
