"""HTTP serving shared by the proxy, the pages and the MCP server: loopback, hosts, tokens."""
