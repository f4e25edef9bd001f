"""Installation: adds contextstash to the clients' own configuration files, and removes it."""
