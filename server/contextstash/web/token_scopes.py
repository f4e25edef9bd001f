"""The scopes of a token. A module of its own, because the command line names the scopes before it loads anything."""

SCOPES = ("read", "write", "admin")
DEFAULT_SCOPES = ("read", "write")
