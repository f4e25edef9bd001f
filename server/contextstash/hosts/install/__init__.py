"""Installing: contextstash in the clients' own configuration files, and out of them again."""
