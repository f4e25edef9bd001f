"""The commands under "For clients and scripts" in `contextstash --help`."""
