"""The commands under "Start" in `contextstash --help`."""
