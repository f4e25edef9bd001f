"""HTTP serving shared by the proxy, the pages and the MCP server: loopback, hosts, limits, tokens."""
