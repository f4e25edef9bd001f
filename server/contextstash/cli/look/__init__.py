"""The commands under "Look" in `contextstash --help`."""
