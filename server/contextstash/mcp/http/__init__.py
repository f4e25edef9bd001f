"""The server over streamable HTTP: access, limits, hosts, metrics."""
