"""The commands under "Change" in `contextstash --help`."""
