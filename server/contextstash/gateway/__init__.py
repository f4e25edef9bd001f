"""The gateway: other MCP servers behind one of ours, which keeps their outputs small."""
