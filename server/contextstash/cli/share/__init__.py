"""The commands under "Share and check" in `contextstash --help`."""
