"""The gateway: an MCP server in front of other ones, which keeps their outputs small."""
