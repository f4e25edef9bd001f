"""The demonstration: a session that ships with the package, and the steps on it."""
