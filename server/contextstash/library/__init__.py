"""contextstash within a Python program, without a server: `from contextstash import open_stash`."""
